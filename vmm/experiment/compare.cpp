// SPDX-License-Identifier: Apache-2.0
// The course of a comparison: boot every guest, warm up, look for best values, measure in randomised complete blocks.
#include "experiment/compare.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <unistd.h>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_depth.hpp"
#include "base/parse.hpp"
#include "experiment/compare_report.hpp"
#include "experiment/progress.hpp"
#include "experiment/run.hpp"
#include "experiment/supervisor.hpp"
#include "experiment/trial_runner.hpp"
#include "stats/inference.hpp"

namespace vmm::experiment {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kResultLimitBytes = 256 << 20;
constexpr std::size_t kNestingMaximum = 64;
// A sweep whose best value lies at its edge is extended so often.
constexpr unsigned kExtensionsMaximum = 4;
// Where the guest records no gaps.
constexpr std::uint64_t kGapUnknownNs = 2'000'000;
// The result file is renewed when that takes less than a fiftieth of the time since it was.
constexpr int kCheckpointShare = 50;
// Any number other than a block's, so that exploration has an order of its own.
constexpr std::uint64_t kExploreSalt = 0x6578706c6f7265;

// Of the workload, valid or not; 0 where it said none.
double workload_seconds(const Json& trial) {
  const auto seconds = trial.find("seconds");
  return seconds != trial.end() && seconds->is_number() ? seconds->get<double>() : 0;
}

double seconds_of(const Json& trial) {
  return trial.value("valid", false) ? workload_seconds(trial) : 0;
}

// What is no UTF-8 (a file's name may be) is replaced: a result must not be lost for it.
std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A document with a line for each trial: small, and readable where it is compared.
std::string document_text(const Json& document) {
  std::string text = "{\n";
  bool first = true;
  for (const auto& [key, value] : document.items()) {
    text += fmt::format("{}{}: ", first ? "" : ",\n", Json(key).dump());
    first = false;
    if (value.is_array() && !value.empty() && value.front().is_object()) {
      text += "[";
      for (std::size_t i = 0; i < value.size(); ++i) text += fmt::format("{}\n{}", i == 0 ? "" : ",", dumped(value[i]));
      text += "\n]";
    } else {
      text += dumped(value);
    }
  }
  return text + "\n}\n";
}

// The trials that there are, in the file and in memory.
class Record {
 public:
  Record(const CompareConfig& config, std::uint64_t seed) : config_(config), start_(Clock::now()) {
    document_ = {{"schema", kCompareSchema},
                 {"seed", seed},
                 {"partial", true},
                 {"config", to_json(config.comparison)},
                 {"host", host_json()},
                 {"guests", Json::array()},
                 {"time_spent", Json::object()},
                 {"guest_restarts", Json::array()},
                 {"arms", Json::array()},
                 {"warm_up", Json::array()},
                 {"exploration", Json::array()},
                 {"trials", Json::array()}};
    for (const Arm& arm : config.comparison.arms) {
      Json json = to_json(arm);
      json["found_ns"] = nullptr;
      json["left_out"] = nullptr;
      document_["arms"].push_back(std::move(json));
    }
  }

  // Goes on from an earlier file; without one starts anew. Throws BadInput when it is of another comparison.
  void resume(Progress& progress) {
    if (!std::filesystem::exists(*config_.stats)) return;
    (void)base::open_input("--resume", *config_.stats);
    const std::string text = base::read_text(*config_.stats, kResultLimitBytes);
    const bool deep = base::nests_deeper(text, kNestingMaximum);
    const Json earlier = deep ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, false);
    const auto refuse = [&](const std::string& why) {
      throw base::BadInput(
          fmt::format("--resume: '{}' {}; another --stats file starts anew", config_.stats->string(), why));
    };
    if (earlier.is_discarded()) refuse("is not JSON");
    (void)analyse(earlier);  // refuses all that is no result
    if (earlier.value("config", Json()) != document_.at("config")) refuse("is the result of another comparison");
    if (config_.seed && earlier.value("seed", Json()) != Json(*config_.seed)) refuse("has another --seed");
    if (earlier.value("host", Json()) != document_.at("host"))
      refuse("was measured on another host, or this one has changed");
    document_["seed"] = earlier.at("seed");
    for (const char* list : {"guest_restarts", "warm_up", "exploration", "trials", "arms"}) {
      if (earlier.contains(list)) document_[list] = earlier.at(list);
    }
    earlier_ = analyse(earlier).time_spent.value_or(TimeSpent{});
    progress.line(
        fmt::format("going on with {} trials of '{}'", document_.at("trials").size(), config_.stats->string()));
  }

  // What the boots and crashed guests of this run have taken.
  void note_losses(std::chrono::nanoseconds boots, std::chrono::nanoseconds crashes) {
    boots_ = boots;
    crashes_ = crashes;
  }

  std::uint64_t seed() const { return document_.at("seed").get<std::uint64_t>(); }
  Json& operator[](const char* key) { return document_[key]; }
  Json& arm(std::size_t index) { return document_["arms"].at(index); }

  // The trial of `list` with these fields, when there is one.
  const Json* find(const char* list, const Json& key) const {
    for (const Json& trial : document_.at(list)) {
      const bool same = std::ranges::all_of(key.items(), [&](const auto& field) {
        const auto found = trial.find(field.key());
        return found != trial.end() && *found == field.value();
      });
      if (same) return &trial;
    }
    return nullptr;
  }

  // Renews the file, when that costs little.
  void checkpoint() {
    const auto now = Clock::now();
    if (now - written_at_ < kCheckpointShare * writing_took_) return;
    write(true);
    written_at_ = Clock::now();
    writing_took_ = written_at_ - now;
  }

  void write(bool partial) {
    document_["partial"] = partial;
    document_["time_spent"] = time_spent();
    if (!config_.stats || (partial && *config_.stats == "-")) return;
    document_["analysis"] = to_json(analyse(document_));
    base::AtomicFile("--stats", *config_.stats).commit(document_text(document_));
  }

  const Json& document() const noexcept { return document_; }

 private:
  Json time_spent() const {
    double workload_s = 0;
    for (const char* list : {"warm_up", "exploration", "trials"}) {
      for (const Json& trial : document_.at(list)) workload_s += workload_seconds(trial);
    }
    const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
    return {{"wall_s", earlier_.wall_s + seconds(Clock::now() - start_)},
            {"workload_s", workload_s},
            {"boots_s", earlier_.boots_s + seconds(boots_)},
            {"crashes_s", earlier_.crashes_s + seconds(crashes_)}};
  }

  const CompareConfig& config_;
  Json document_;
  Clock::time_point start_;
  TimeSpent earlier_;  // before --resume
  std::chrono::nanoseconds boots_{0};
  std::chrono::nanoseconds crashes_{0};
  Clock::time_point written_at_{};
  Clock::duration writing_took_{0};
};

class Course {
 public:
  Course(const CompareConfig& config, Record& record, TrialRunner& runner, Progress& progress)
      : comparison_(config.comparison), record_(record), runner_(runner), progress_(progress), start_(Clock::now()) {
    // One warm-up trial for each boot; how many the exploration needs shows later.
    planned_ = comparison_.blocks * comparison_.arms.size();
  }

  // Asks for the end after the trial that runs. Another thread.
  void end_soon(int signal) { signal_.store(signal); }

  void run() {
    runner_.boot();
    record_.note_losses(runner_.boots(), runner_.crashes());
    record_["guests"] = runner_.guests_json();
    const auto notes = runner_.notes();
    for (std::size_t i = 0; i < comparison_.arms.size(); ++i) {
      const auto reason = runner_.left_out().find(comparison_.arms[i].name);
      record_.arm(i)["left_out"] = reason == runner_.left_out().end() ? Json(nullptr) : Json(reason->second);
      const auto note = notes.find(comparison_.arms[i].name);
      record_.arm(i)["note"] = note == notes.end() ? Json(nullptr) : Json(note->second);
    }
    warm_up();
    explore();
    measure();
  }

 private:
  bool is_left_out(const Arm& arm) const { return runner_.left_out().contains(arm.name); }

  // The trial with this key in `list`: the one on record, or a new one.
  const Json& trial(const char* list, const Arm& arm, Json key) {
    if (const Json* known = record_.find(list, key)) return *known;
    if (const int signal = signal_.load(); signal != 0) {
      throw ComparisonEnded({machine::Stop::Kind::kInterrupted, fmt::format("ended by {}", ::strsignal(signal)),
                             static_cast<std::uint32_t>(signal)});
    }
    progress_.update({done_, planned_, done_ == 0 ? -1 : seconds_left(), label(list, arm, key)});
    // Recording gaps costs the guest a little: in warm-up trials only.
    Json measured = runner_.run(arm, std::string_view(list) == "warm_up");
    key.update(measured);
    record_["guest_restarts"] = runner_.restarts();
    record_.note_losses(runner_.boots(), runner_.crashes());
    record_[list].push_back(std::move(key));
    const Json& added = record_[list].back();
    ++done_;
    tell(list, arm, added);
    record_.checkpoint();
    return added;
  }

  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double seconds_left() const {
    const auto left = planned_ > done_ ? planned_ - done_ : 0;
    return elapsed_s() / static_cast<double>(done_) * static_cast<double>(left);
  }

  // "block 3, guest-spin=50us"
  static std::string label(std::string_view list, const Arm& arm, const Json& key) {
    std::string text = list == "trials" ? fmt::format("block {}, {}", key.at("block").dump(), arm.name)
                                        : fmt::format("{} {}", list, arm.name);
    if (const auto value = key.find("value_ns"); value != key.end() && value->is_number_unsigned()) {
      text += ": " + base::format_duration_ns(value->get<std::uint64_t>());
    }
    return text;
  }

  // A line a trial where there is no bar; where there is, only of what is wrong.
  void tell(const char* list, const Arm& arm, const Json& added) const {
    const bool valid = added.value("valid", false);
    if (valid && progress_.has_bar()) return;
    progress_.line(fmt::format("[{:6.1f} s] {}: {}; {} of {} trials, about {:.0f} s left", elapsed_s(),
                               label(list, arm, added),
                               valid ? fmt::format("{:.3f} s", seconds_of(added))
                                     : fmt::format("invalid: {}", added.value("invalid_because", Json()).dump()),
                               done_, planned_, seconds_left()));
  }

  // The first trial of each guest and of the host is dropped: caches, page faults and the first use of everything.
  void warm_up() {
    std::vector<GuestConfig> seen;
    bool host = false;
    for (const Arm& arm : comparison_.arms) {
      if (is_left_out(arm)) continue;
      const GuestConfig boot = boot_config(arm.guest);
      const bool again = arm.host ? std::exchange(host, true) : std::ranges::find(seen, boot) != seen.end();
      if (again) continue;
      if (!arm.host) seen.push_back(boot);
      ++planned_;
      // Another boot than the one on record, after --resume, needs a warm-up of its own.
      if (record_.find("warm_up", {{"arm", arm.name}}) != nullptr) (void)runner_.run(arm, true);
      (void)trial("warm_up", arm, {{"arm", arm.name}});
    }
  }

  // The p90 of the idle gaps of the baseline's guest, the longest of its vCPUs; an upper bound, as the histogram has
  // it.
  std::uint64_t gap_p90_ns() {
    std::uint64_t longest = 0;
    const auto baseline = std::ranges::find(comparison_.arms, comparison_.baseline, &Arm::name);
    for (const Json& warm : record_["warm_up"]) {
      const auto arm = std::ranges::find(comparison_.arms, warm.at("arm").get<std::string>(), &Arm::name);
      if (arm == comparison_.arms.end() || arm->host || boot_config(arm->guest) != boot_config(baseline->guest))
        continue;
      for (const Json& vcpu : warm.at("vcpus")) {
        const auto p90 = vcpu.value(Json::json_pointer("/histograms/guest_idle_gap_ns/p90_below"), Json());
        if (p90.is_number_unsigned()) longest = std::max(longest, p90.get<std::uint64_t>());
      }
    }
    if (longest != 0) return longest;
    progress_.line("the guest recorded no idle gaps: a guess takes their place");
    return kGapUnknownNs;
  }

  void explore() {
    struct Search {
      std::size_t arm;
      Sweep sweep;
      unsigned extensions = 0;
      bool found = false;
    };
    std::vector<Search> searches;
    for (std::size_t i = 0; i < comparison_.arms.size(); ++i) {
      const Arm& arm = comparison_.arms[i];
      if (arm.best_of && !is_left_out(arm)) searches.push_back({i, {}});
    }
    if (searches.empty()) return;
    const std::uint64_t gap_ns = gap_p90_ns();
    const std::vector<std::uint64_t> values = sweep_values_ns(gap_ns);
    progress_.line(fmt::format("90 % of the idle gaps are below {}: looking for best values from {} to {}",
                               base::format_duration_ns(gap_ns), base::format_duration_ns(values.front()),
                               base::format_duration_ns(values.back())));
    record_["idle_gap_p90_below_ns"] = gap_ns;
    struct Step {
      Search* search;
      std::uint64_t value_ns;
    };
    std::vector<Step> steps;
    for (Search& search : searches) {
      for (const std::uint64_t value_ns : values) steps.push_back({&search, value_ns});
    }
    planned_ += steps.size() * comparison_.explore_blocks;
    for (unsigned block = 0; !steps.empty(); ++block) {
      // One pass tries every value in explore_blocks blocks; later passes are the extensions of sweeps whose best value
      // lies at an edge.
      for (unsigned repeat = 0; repeat < comparison_.explore_blocks; ++repeat) {
        const unsigned round = block * comparison_.explore_blocks + repeat;
        for (const std::size_t index : block_order(record_.seed() ^ kExploreSalt, round, steps.size())) {
          explore_one(steps[index].search->sweep, comparison_.arms[steps[index].search->arm], steps[index].value_ns,
                      round);
        }
      }
      steps.clear();
      for (Search& search : searches) {
        if (search.found) continue;
        if (const auto next = beyond_edge(search.sweep); next && search.extensions < kExtensionsMaximum) {
          ++search.extensions;
          steps.push_back({&search, *next});
          continue;
        }
        search.found = true;
        const std::uint64_t best_ns = best_value_ns(search.sweep);
        record_.arm(search.arm)["found_ns"] = best_ns;
        found_[search.arm] = best_ns;
        progress_.line(
            fmt::format("best of {}: {}", comparison_.arms[search.arm].name, base::format_duration_ns(best_ns)));
      }
      planned_ += steps.size() * comparison_.explore_blocks;
    }
  }

  void explore_one(Sweep& sweep, Arm arm, std::uint64_t value_ns, unsigned block) {
    set_knob(arm.guest, *arm.best_of, value_ns);
    const Json& measured = trial("exploration", arm, {{"arm", arm.name}, {"value_ns", value_ns}, {"block", block}});
    auto point = std::ranges::find(sweep.points, value_ns, &Sweep::Point::value_ns);
    if (point == sweep.points.end()) {
      point = std::ranges::find_if(sweep.points, [&](const Sweep::Point& p) { return p.value_ns > value_ns; });
      point = sweep.points.insert(point, {value_ns, {}});
    }
    if (const double seconds = seconds_of(measured); seconds > 0) point->seconds.push_back(seconds);
  }

  // The next value where the best one so far is the first or the last that was tried.
  static std::optional<std::uint64_t> beyond_edge(const Sweep& sweep) {
    if (std::ranges::all_of(sweep.points, [](const Sweep::Point& p) { return p.seconds.empty(); })) {
      throw base::HostUnable("no trial of a sweep was valid; the messages above say why");
    }
    const std::uint64_t best = best_value_ns(sweep);
    if (best == sweep.points.back().value_ns) return sweep_step_up(best);
    if (best == sweep.points.front().value_ns) return sweep_step_down(best);
    return std::nullopt;
  }

  void measure() {
    for (unsigned block = 0; block < comparison_.blocks; ++block) {
      unsigned position = 0;
      for (const std::size_t index : block_order(record_.seed(), block, comparison_.arms.size())) {
        Arm arm = comparison_.arms[index];
        if (is_left_out(arm)) {
          if (block == 0) planned_ -= comparison_.blocks;
          continue;
        }
        if (arm.best_of) set_knob(arm.guest, *arm.best_of, found_.at(index));
        (void)trial("trials", arm, {{"arm", arm.name}, {"block", block}, {"position", position++}});
      }
    }
  }

  const Comparison& comparison_;
  Record& record_;
  TrialRunner& runner_;
  Progress& progress_;
  Clock::time_point start_;
  std::map<std::size_t, std::uint64_t> found_;
  std::size_t planned_ = 0;
  std::size_t done_ = 0;
  std::atomic<int> signal_{0};
};

// SIGINT and its like: the first ends the comparison after the trial that runs, the second at once.
std::unique_ptr<Supervisor> watch_signals(Course& course, TrialRunner& runner, Progress& progress) {
  Supervisor::Callbacks callbacks;
  callbacks.on_end_signal = [&course, &runner, &progress, again = false](int signal) mutable {
    if (std::exchange(again, true)) {
      runner.interrupt({machine::Stop::Kind::kInterrupted, fmt::format("ended by {}", ::strsignal(signal)),
                        static_cast<std::uint32_t>(signal)});
    } else {
      progress.line(fmt::format("{}: ending after this trial; once more ends at once", ::strsignal(signal)));
      course.end_soon(signal);
    }
  };
  callbacks.on_dump_signal = [&runner] { runner.dump_statistics(); };
  return std::make_unique<Supervisor>(Supervisor::Config{}, std::move(callbacks));
}

}  // namespace

int run_compare(const CompareConfig& config) {
  if (config.stats == "-" && config.csv == "-") {
    throw base::BadInput("--csv: '-' is taken by --stats; a file's path works");
  }
  if (config.resume && (!config.stats || *config.stats == "-")) {
    throw base::BadInput("--resume: goes on with the --stats file, which is not given");
  }
  // What can be known before the first trial: that the files can be written. Without commit() nothing stays of them.
  for (const auto& [option, path] : {std::pair{"--stats", &config.stats}, std::pair{"--csv", &config.csv}}) {
    if (*path && **path != "-") (void)base::AtomicFile(option, **path);
  }
  Record record(config, config.seed.value_or(static_cast<std::uint64_t>(Clock::now().time_since_epoch().count())));
  Progress progress(STDERR_FILENO, "compare");
  if (config.resume) record.resume(progress);
  TrialRunner runner(config.comparison, {config.console, config.timeout_ms, config.watchdog_ms,
                                         [&progress](const std::string& text) { progress.line(text); }});
  Course course(config, record, runner, progress);
  const auto supervisor = watch_signals(course, runner, progress);
  int status = 0;
  try {
    course.run();
    runner.finish();
  } catch (const ComparisonEnded& end) {
    progress.line(end.what());
    status = static_cast<int>(exit_status_of(end.stop(), std::nullopt, true));
  } catch (const base::Error&) {
    try {
      record.write(true);  // what there is
    } catch (const base::Error& error) {
      progress.line(error.what());
    }
    throw;
  }
  progress.clear();
  record.write(status != 0);
  if (config.csv) base::AtomicFile("--csv", *config.csv).commit(compare_csv(record.document()));
  if (config.stats != "-" && config.csv != "-") base::write_result(compare_table(record.document()));
  return status;
}

}  // namespace vmm::experiment
