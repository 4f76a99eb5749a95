// SPDX-License-Identifier: Apache-2.0
#include "app/options.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <limits>

#include "base/error.hpp"
#include "base/parse.hpp"
#include "experiment/compare.hpp"
#include "machine/machine.hpp"
#include "memory/layout.hpp"

namespace vmm::app {
namespace {

using base::BadInput;
namespace layout = memory::layout;

constexpr std::uint64_t kHaltPollMaximumNs = 1'000'000'000;
constexpr std::uint64_t kDayMs = 86'400'000;
constexpr unsigned kHostCpusMaximum = 8192;

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
    "  vmm compare --guest-spin=0,50us,220us,best   arms side by side\n"
    "  vmm doctor                                   what this host can and cannot do";

// A size below the minimum is named as such even when it has no suffix.
std::uint64_t memory_option(const std::string& text) {
  const std::uint64_t bytes =
      base::parse_size_bytes("--memory", text, {layout::kMemoryMinimum, layout::kMemoryMaximum});
  if (bytes % layout::kPageBytes != 0) {
    throw BadInput(fmt::format("--memory: '{}' is not a multiple of 4K; {} works", text,
                               base::format_size_bytes(bytes / layout::kPageBytes * layout::kPageBytes)));
  }
  return bytes;
}

experiment::GuestIdle idle_option(const std::string& text) {
  using experiment::GuestIdle;
  for (const GuestIdle idle : {GuestIdle::kHalt, GuestIdle::kHaltpoll, GuestIdle::kPoll, GuestIdle::kMwait}) {
    if (text == name_of(idle)) return idle;
  }
  throw BadInput(fmt::format("--guest-idle: '{}' is none of halt, haltpoll, poll, mwait", text));
}

experiment::ConsoleConfig console_option(const std::string& text) {
  using Kind = experiment::ConsoleConfig::Kind;
  if (text == "off") return {Kind::kOff, {}};
  if (text == "stdio") return {Kind::kStdio, {}};
  if (text == "stderr") return {Kind::kStderr, {}};
  if (text.empty()) throw BadInput("--console: '' is none of stdio, off, stderr or a file's path");
  return {Kind::kFile, text};
}

// The options of one guest, as text: CLI11 only splits argv; values are read by base/parse, which says what would work.
struct GuestText {
  std::string payload, kernel, initrd, cmdline, cpus, memory, pin, guest_spin, guest_idle, guest_halt_poll,
      host_halt_poll, disable_exits, irqchip, flavour, workload;

  void add_to(CLI::App& app, bool lists) {
    app.add_option("--kernel", kernel, "bzImage or ELF vmlinux, told apart by content [the built guest]")
        ->type_name("FILE");
    app.add_option("--initrd", initrd, "initial RAM disk")->type_name("FILE");
    app.add_option("--cmdline", cmdline, "kernel command line; appended to the default with the built guest")
        ->type_name("STR");
    app.add_option("--cpus", cpus, fmt::format("vCPUs, 1 to {} [2]", layout::kVcpusMaximum))->type_name("N");
    app.add_option("--memory", memory, "guest memory, 64M to 512G [256M]")->type_name("SIZE");
    app.add_option("--pin", pin, "host CPU of each vCPU thread, e.g. 0,1")->type_name("LIST");
    app.add_option("--guest-spin", guest_spin,
                   lists ? "idle_spin values, e.g. 0,50us,220us,best [0,50,220,best]"
                         : "idle_spin, 0 to 1000000 us; also 50us, 1ms")
        ->type_name(lists ? "LIST" : "US");
    app.add_option("--guest-idle", guest_idle, "idle method: halt, haltpoll, poll, mwait")->type_name("METHOD");
    app.add_option("--guest-halt-poll", guest_halt_poll, "haltpoll governor's guest_halt_poll_ns, 0 to 1s")
        ->type_name("NS");
    app.add_option("--host-halt-poll", host_halt_poll, "this VM's halt_poll_ns, 0 to 1s; also 200us")->type_name("NS");
    app.add_option("--disable-exits", disable_exits, "exits the guest keeps: hlt,mwait,pause,cstate")
        ->type_name("LIST");
    app.add_option("--irqchip", irqchip, "where the interrupt controllers live: kernel [kernel]")->type_name("WHERE");
    app.add_option("--guest", flavour, "which built guest: lab [lab]")->type_name("NAME");
    app.add_option("--workload", workload, "what the guest's agent runs [tcp-pingpong]")
        ->type_name("NAME[:key=value,…]");
  }

  experiment::GuestConfig parse(bool spin_is_list) const {
    experiment::GuestConfig guest;
    if (!payload.empty()) {
      if (payload.find('/') != std::string::npos) {
        const std::size_t colon = payload.find(':', payload.rfind('/'));
        guest.payload = base::NamedParameters{payload.substr(0, colon), {}};
        if (colon != std::string::npos) {
          guest.payload->parameters =
              base::parse_named_parameters("--payload", "file" + payload.substr(colon)).parameters;
        }
      } else {
        guest.payload = base::parse_named_parameters("--payload", payload);
      }
      for (const auto& [name, text] : {std::pair{"--kernel", &kernel},
                                       {"--initrd", &initrd},
                                       {"--cmdline", &cmdline},
                                       {"--workload", &workload},
                                       {"--guest-idle", &guest_idle}}) {
        if (!text->empty())
          throw BadInput(fmt::format("{}: '{}' cannot go with --payload, which has no kernel", name, *text));
      }
    }
    guest.kernel = kernel;
    guest.initrd = initrd;
    guest.cmdline = cmdline;
    if (!cpus.empty()) {
      guest.cpus = static_cast<unsigned>(base::parse_integer("--cpus", cpus, {1, layout::kVcpusMaximum}));
    }
    if (!memory.empty()) guest.memory_bytes = memory_option(memory);
    if (!pin.empty()) {
      guest.pin = base::parse_cpu_list("--pin", pin, kHostCpusMaximum);
      if (guest.pin.size() != guest.cpus) {
        throw BadInput(fmt::format("--pin: '{}' names {} host CPUs for {} vCPUs; one each is needed", pin,
                                   guest.pin.size(), guest.cpus));
      }
    }
    if (!guest_spin.empty() && !spin_is_list) guest.guest_spin_us = experiment::parse_guest_spin_us(guest_spin);
    if (!guest_idle.empty()) guest.guest_idle = idle_option(guest_idle);
    if (!guest_halt_poll.empty()) {
      guest.guest_halt_poll_ns =
          base::parse_duration_ns("--guest-halt-poll", guest_halt_poll, 1, {0, kHaltPollMaximumNs});
    }
    if (!host_halt_poll.empty()) {
      guest.host_halt_poll_ns = base::parse_duration_ns("--host-halt-poll", host_halt_poll, 1, {0, kHaltPollMaximumNs});
    }
    if (!disable_exits.empty()) guest.disable_exits = machine::parse_disable_exits(disable_exits);
    if (!irqchip.empty() && irqchip != "kernel") {
      throw BadInput(fmt::format("--irqchip: '{}' is not offered by this version; 'kernel' works", irqchip));
    }
    if (!flavour.empty() && flavour != "lab") {
      throw BadInput(fmt::format("--guest: '{}' is not a guest of this version; 'lab' works", flavour));
    }
    return guest;
  }
};

}  // namespace

Command parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app{kDescription, "vmm"};
  app.footer(kFooter);
  app.set_version_flag("--version", "vmm 0.1");
  app.require_subcommand(0, 1);

  GuestText text;
  std::string stats, stats_interval, console, timeout, watchdog;
  RunCommand run;
  text.add_to(app, false);
  app.add_option("--payload", text.payload, "a bare-metal payload instead of a kernel")
      ->type_name("NAME|FILE[:key=value,…]");
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
  CLI::App* report_app = app.add_subcommand("report", "the table of a result file of compare");
  report_app->add_option("file", report.file, "what compare wrote with --stats")->type_name("FILE.json")->required();

  CLI::App* compare_app =
      app.add_subcommand("compare", "the host and guests with different idle policies, side by side");
  GuestText compare_text;
  CompareCommand compare;
  std::string compare_stats, repetitions, compare_timeout, compare_console, seed;
  compare_text.add_to(*compare_app, true);
  compare_app->add_option("--repetitions", repetitions, "measured trials of each arm, 1 to 1000 [3]")->type_name("N");
  compare_app->add_option("--seed", seed, "of the random order of the trials [from the clock, printed]")
      ->type_name("N");
  compare_app->add_option("--stats", compare_stats, "the result as JSON; - is standard output")->type_name("FILE|-");
  compare_app->add_option("--timeout", compare_timeout, "give up after this long [none]")->type_name("SEC");
  compare_app->add_option("--console", compare_console, "guest console: off, stderr or a file [off]")
      ->type_name("FILE|off");

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
  if (*report_app) return report;
  if (*compare_app) {
    experiment::CompareConfig& config = compare.config;
    config.guest = compare_text.parse(true);
    if (!compare_text.workload.empty()) {
      config.workload = base::parse_named_parameters("--workload", compare_text.workload);
    }
    if (!compare_text.guest_spin.empty()) config.arms = experiment::parse_spin_arms(compare_text.guest_spin);
    if (!repetitions.empty()) {
      config.repetitions = static_cast<unsigned>(base::parse_integer("--repetitions", repetitions, {1, 1000}));
    }
    if (!seed.empty()) {
      config.seed = base::parse_integer("--seed", seed, {0, std::numeric_limits<std::uint64_t>::max()});
    }
    if (!compare_stats.empty()) config.stats = compare_stats;
    if (!compare_timeout.empty()) config.timeout_ms = seconds("--timeout", compare_timeout, 1'000'000'000);
    config.console = compare_console.empty() ? experiment::ConsoleConfig{experiment::ConsoleConfig::Kind::kOff, {}}
                                             : console_option(compare_console);
    return compare;
  }

  experiment::RunConfig& config = run.config;
  config.guest = text.parse(false);
  if (!text.workload.empty()) config.workload = base::parse_named_parameters("--workload", text.workload);
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
