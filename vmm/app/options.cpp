// SPDX-License-Identifier: Apache-2.0
#include "app/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse.hpp"
#include "experiment/compare.hpp"
#include "experiment/guest_options.hpp"
#include "experiment/workload_file.hpp"

namespace vmm::app {
namespace {

using base::BadInput;

constexpr std::uint64_t kDayMs = 86'400'000;

constexpr const char* kDescription =
    "Runs a guest on /dev/kvm and counts, per vCPU, its HLT exits and the IPIs it sends and receives.\n"
    "Without --kernel or --payload: the patched guest that ./run or ./test has built, with a workload.";

constexpr const char* kFooter =
    "Exit status: 0 done; 1 the workload failed; 2 bad usage or input file; 3 this host or guest cannot do it;\n"
    "4 the guest crashed; 124 time-out. Results go to standard output, everything else to standard error.\n"
    "Examples:\n"
    "  vmm --guest-spin=50                          one run, table\n"
    "  vmm --payload ipi-pingpong:rounds=1000       a bare-metal payload, needs no Linux guest\n"
    "  vmm --kernel vmlinuz --initrd initrd.gz --cmdline 'console=ttyS0' --console=stdio\n"
    "  vmm compare --preset polling                 every idle policy at its best, side by side\n"
    "  vmm compare --guest-spin=0,50us,220us,best   a grid of one's own\n"
    "  vmm doctor                                   what this host can and cannot do";

experiment::ConsoleConfig console_option(const std::string& text) {
  using Kind = experiment::ConsoleConfig::Kind;
  if (text == "off") return {Kind::kOff, {}};
  if (text == "stdio") return {Kind::kStdio, {}};
  if (text == "stderr") return {Kind::kStderr, {}};
  if (text.empty()) throw BadInput("--console: '' is none of stdio, off, stderr or a file's path");
  return {Kind::kFile, text};
}

// The options of one guest: CLI11 only splits argv; values are read by parse_guest_options(), which says what would
// work.
class GuestText {
 public:
  // `without`: the options that a command has no use for.
  void add_to(CLI::App& app, std::initializer_list<std::string_view> without = {}) {
    for (const experiment::GuestOption& option : experiment::guest_options()) {
      if (std::ranges::find(without, option.name) != without.end()) continue;
      CLI::Option* added =
          app.add_option(std::string("--") + option.name, text_[option.name], option.help)->type_name(option.type);
      options_.emplace_back(option.name, added);
    }
    app.add_option("--workload", workload_, "what the guest's agent runs [tcp-pingpong]")
        ->type_name("NAME[:key=value,…]");
  }

  experiment::OptionText given() const {
    experiment::OptionText text;
    for (const auto& [name, option] : options_) {
      if (option->count() > 0) text[name] = text_.at(name);
    }
    return text;
  }

  std::optional<base::NamedParameters> workload() const {
    if (workload_.empty()) return std::nullopt;
    return base::parse_named_parameters("--workload", workload_);
  }

 private:
  std::map<std::string, std::string> text_;
  std::vector<std::pair<std::string, CLI::Option*>> options_;
  std::string workload_;
};

}  // namespace

void settle(CompareCommand& command) {
  experiment::Comparison& comparison = command.config.comparison;
  const auto guest = std::ranges::find(comparison.arms, false, &experiment::Arm::host);
  if (guest != comparison.arms.end() && (command.workload || !guest->guest.workload_file.empty())) {
    comparison.workload = experiment::workload_of(guest->guest, command.workload);
  }
  if (command.blocks) comparison.blocks = *command.blocks;
  experiment::complete(comparison);
}

Command parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app{kDescription, "vmm"};
  app.footer(kFooter);
  app.set_version_flag("--version", "vmm 0.1");
  app.require_subcommand(0, 1);

  GuestText text;
  std::string stats, stats_interval, console, timeout, watchdog;
  RunCommand run;
  text.add_to(app);
  app.add_option("--stats", stats, "the exit statistics as JSON; - is standard output")->type_name("FILE|-");
  app.add_option("--stats-interval", stats_interval, "a time series as JSON lines in the --stats file")
      ->type_name("MS");
  app.add_flag("--exit-times", run.config.exit_times,
               "time from each exit to the next entry; costs two samples an exit");
  app.add_option("--console", console, "guest console: stdio (interactive), off, stderr or a file [stderr]")
      ->type_name("stdio|FILE|off");
  app.add_option("--timeout", timeout, "give up after this long, dump what there is [none]")->type_name("SEC");
  app.add_option("--watchdog", watchdog, "the same when the guest shows no progress; 0: never [30]")->type_name("SEC");

  DoctorCommand doctor;
  CLI::App* doctor_app =
      app.add_subcommand("doctor", "what this host's KVM offers, tried, and how to get what it lacks");
  doctor_app->add_option("--device", doctor.device, "the KVM device [/dev/kvm]")->type_name("FILE");
  doctor_app->add_flag("--json", doctor.json, "as JSON");

  ReportCommand report;
  std::string html;
  CLI::App* report_app = app.add_subcommand("report", "the tables of a result file of compare, or a page with plots");
  report_app->add_option("file", report.file, "what compare wrote with --stats")->type_name("FILE.json")->required();
  report_app->add_option("-o,--output", html, "a self-contained HTML page instead (needs gnuplot)")
      ->type_name("FILE.html");

  CheckCommand check;
  std::vector<std::string> limits;
  std::string junit;
  CLI::App* check_app = app.add_subcommand("check", "whether a result of compare is worse than an earlier one: for CI");
  check_app->add_option("baseline", check.baseline, "the earlier result")->type_name("BASELINE.json")->required();
  check_app->add_option("current", check.current, "the new result")->type_name("CURRENT.json")->required();
  check_app
      ->add_option("--max", limits,
                   "how much worse a number may get; may be given again [all counters per operation by +5%]")
      ->type_name("NAME=+P%")
      ->allow_extra_args(false);
  check_app->add_option("--junit", junit, "the verdicts as JUnit XML")->type_name("FILE.xml");
  check_app->footer("Exit status: 0 nothing is worse than allowed; 1 something is, beyond noise; 2 bad input.");

  CLI::App* compare_app =
      app.add_subcommand("compare", "the host and guests with different idle policies, side by side");
  GuestText compare_text;
  CompareCommand compare;
  std::string file, preset, compare_stats, csv, blocks, compare_timeout, compare_watchdog, compare_console, seed;
  compare_app->add_option("file", file, "a comparison of one's own (docs/experiments.md)")->type_name("FILE.toml");
  compare_app->add_option("--preset", preset, "seed, polling or contention [seed]")->type_name("NAME");
  compare_text.add_to(*compare_app, {"payload", "initrd"});  // a workload needs the agent
  compare_app->add_option("--blocks", blocks, "measured trials of each arm, 1 to 1000 [8]; fewer than 6: no intervals")
      ->type_name("N");
  compare_app->add_option("--seed", seed, "of the random order of the trials [from the clock, printed]")
      ->type_name("N");
  compare_app->add_option("--stats", compare_stats, "the result as JSON; - is standard output")->type_name("FILE|-");
  compare_app->add_option("--csv", csv, "the trials as CSV; - is standard output")->type_name("FILE|-");
  compare_app->add_flag("--resume", compare.config.resume, "go on with the --stats file of a run that was ended");
  compare_app->add_option("--timeout", compare_timeout, "give up after this long [none]")->type_name("SEC");
  compare_app
      ->add_option("--watchdog", compare_watchdog,
                   "start a guest again that shows no progress for so long; 0: never [60]")
      ->type_name("SEC");
  compare_app->add_option("--console", compare_console, "guest console: off, stderr or a file [off]")
      ->type_name("FILE|off");
  compare_app->footer(
      "guest-spin, guest-idle, guest-halt-poll and host-halt-poll take lists (0,50us,best): every combination is an "
      "arm.");

  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    for (const CLI::App* sub : app.get_subcommands()) return ShowText{sub->help()};
    return ShowText{app.help()};
  } catch (const CLI::CallForVersion&) {
    return ShowText{"vmm 0.1\n"};
  } catch (const CLI::ParseError& error) {
    throw BadInput(fmt::format("{}; `vmm --help` lists the options", error.what()));
  }

  const auto seconds = [](const char* option, const std::string& value, std::uint64_t minimum) {
    return base::parse_duration_ns(option, value, 1'000'000'000, {minimum, kDayMs * 1'000'000}) / 1'000'000;
  };
  if (*doctor_app) return doctor;
  if (*report_app) {
    if (!html.empty()) report.html = html;
    return report;
  }
  if (*check_app) {
    for (const std::string& limit : limits) check.limits.push_back(experiment::parse_check_limit(limit));
    if (!junit.empty()) check.junit = junit;
    return check;
  }
  if (*compare_app) {
    experiment::CompareConfig& config = compare.config;
    compare.guest = compare_text.given();
    compare.workload = compare_text.workload();
    if (!blocks.empty()) {
      compare.blocks = static_cast<unsigned>(base::parse_integer("--blocks", blocks, {1, experiment::kBlocksMaximum}));
    }
    if (!seed.empty()) {
      config.seed = base::parse_integer("--seed", seed, {0, std::numeric_limits<std::uint64_t>::max()});
    }
    if (!compare_stats.empty()) config.stats = compare_stats;
    if (!csv.empty()) config.csv = csv;
    if (!compare_timeout.empty()) config.timeout_ms = seconds("--timeout", compare_timeout, 1'000'000'000);
    if (!compare_watchdog.empty()) config.watchdog_ms = seconds("--watchdog", compare_watchdog, 0);
    if (!compare_console.empty()) config.console = console_option(compare_console);
    if (!file.empty()) {
      if (!preset.empty()) throw BadInput(fmt::format("--preset: '{}' cannot go with the file '{}'", preset, file));
      compare.file = file;
      return compare;
    }
    const bool is_grid = std::ranges::any_of(compare.guest, [](const auto& option) {
      return option.first == "guest-spin" || option.first == "guest-idle" || option.first == "guest-halt-poll" ||
             option.first == "host-halt-poll";
    });
    config.comparison = preset.empty() && is_grid
                            ? experiment::grid_comparison(compare.guest)
                            : experiment::preset_comparison(preset.empty() ? "seed" : preset, compare.guest);
    settle(compare);
    return compare;
  }

  experiment::RunConfig& config = run.config;
  config.guest = experiment::parse_guest_options(text.given());
  const auto workload = text.workload();
  if (workload && config.guest.payload) {
    throw BadInput(fmt::format("--workload: '{}' cannot go with --payload, which is its own", workload->name));
  }
  if (workload && !config.guest.initrd.empty()) {
    throw BadInput(fmt::format("--workload: '{}' needs the agent, which is in the built initramfs; leave --initrd out",
                               workload->name));
  }
  config.workload = experiment::workload_of(config.guest, workload);
  if (!console.empty()) config.console = console_option(console);
  if (!stats.empty()) config.stats = stats;
  if (!stats_interval.empty()) {
    if (!config.stats) throw BadInput("--stats-interval: the time series goes to the --stats file, which is not given");
    config.stats_interval_ms = base::parse_integer("--stats-interval", stats_interval, {10, kDayMs});
  }
  if (!timeout.empty()) config.timeout_ms = seconds("--timeout", timeout, 1'000'000);
  if (!watchdog.empty()) config.watchdog_ms = seconds("--watchdog", watchdog, 0);
  return run;
}

}  // namespace vmm::app
