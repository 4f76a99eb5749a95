// SPDX-License-Identifier: Apache-2.0
#include "experiment/compare.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <memory>
#include <random>
#include <unistd.h>

#include "base/error.hpp"
#include "base/file.hpp"
#include "experiment/compare_report.hpp"
#include "experiment/guest_run.hpp"
#include "experiment/native_workload.hpp"
#include "experiment/run.hpp"
#include "stats/run_report.hpp"

namespace vmm::experiment {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

// The search for the best spin goes up this ladder (us) beyond the largest value asked for, until nearly no HLT is
// left: then every idle gap is covered and more spinning cannot help.
constexpr std::array<std::uint32_t, 6> kSearchLadderUs = {500, 2'000, 5'000, 10'000, 20'000, 50'000};
constexpr double kHltLeftEnough = 0.02;
constexpr std::chrono::minutes kNativeTimeout{30};

struct Measured {
  Arm arm;
  double seconds = 0;
  std::vector<stats::VcpuSnapshot> vcpus;  // of a guest trial
  nlohmann::ordered_json raw;
};

// The guest stopped before the comparison was through.
class GuestEnded : public std::exception {};

// A guest that crashes (under emulation the emulator may be at fault) is started again so often; each time is said and
// kept in the result.
constexpr unsigned kRestartsMaximum = 10;

std::string name_of(const Arm& arm) {
  switch (arm.kind) {
    case Arm::Kind::kHost:
      return "host";
    case Arm::Kind::kGuest:
      return fmt::format("guest, idle_spin={}us", arm.spin_us);
    case Arm::Kind::kBest:
      return fmt::format("guest, best: {}us", arm.spin_us);
  }
  return "?";
}

void progress(const std::string& text) {
  (void)base::write_all(STDERR_FILENO, "compare: " + text + "\n");
}

class Comparison {
 public:
  explicit Comparison(const CompareConfig& config)
      : config_(config), native_(native_workload_path(config.workload.name)), start_(Clock::now()) {
    guest_config_.guest = config.guest;
    guest_config_.console = config.console;
    guest_config_.timeout_ms = config.timeout_ms;
    // Every traced exit costs time, and a guest that halts exits more: counting them all would flatter the spinning
    // arms.
    guest_config_.light_tracing = true;
    guest_config_.watchdog_ms = config.watchdog_ms;
    guest_ = std::make_unique<GuestRun>(guest_config_);
  }

  // Boots the guest and waits for its agent. Throws GuestEnded.
  void boot() {
    progress("booting the guest");
    guest_->start();
    const auto hello = guest_->session().wait_for_hello();
    if (!hello) throw GuestEnded();
    hello_ = *hello;
  }

  // One trial; a guest that crashed meanwhile is booted again and the trial repeated.
  Measured measure(const Arm& arm) {
    while (true) {
      try {
        Measured measured = arm.kind == Arm::Kind::kHost ? measure_host(arm) : measure_guest(arm);
        ++trials_;
        const auto elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
        progress(fmt::format("[{:6.1f} s] trial {}: {}: {:.3f} s", elapsed, trials_, name_of(arm), measured.seconds));
        return measured;
      } catch (const GuestEnded&) {
        if (!restart()) throw;
      }
    }
  }

  // Powers the guest off, when it still runs; how it ended.
  GuestRun::End finish(bool complete) {
    if (!end_) {
      if (complete) {
        guest_->session().power_off();
        guest_->wait_for_stop();
      }
      end_ = guest_->end();
    }
    return *end_;
  }

  // The value that wins, by one trial each up the ladder; not part of the result's medians.
  std::uint32_t search_best(const std::vector<Arm>& arms) {
    std::uint32_t largest = 0;
    for (const Arm& arm : arms) largest = std::max(largest, arm.spin_us);
    const Measured none = measure({Arm::Kind::kGuest, 0});
    const double none_hlt = hlt_exits(none).value_or(0);
    search_.push_back(none);
    for (const std::uint32_t spin_us : kSearchLadderUs) {
      if (spin_us <= largest) continue;
      search_.push_back(measure({Arm::Kind::kGuest, spin_us}));
      const auto hlt = hlt_exits(search_.back());
      if (hlt && *hlt <= none_hlt * kHltLeftEnough) break;
    }
    const auto best = std::ranges::min_element(search_, {}, &Measured::seconds);
    return best->arm.spin_us;
  }

  const std::vector<Measured>& search() const noexcept { return search_; }
  const nlohmann::json& hello() const noexcept { return hello_; }
  const std::vector<std::string>& restarts() const noexcept { return restarts_; }
  bool has_agent() const noexcept { return guest_->has_agent(); }

  static std::optional<double> hlt_exits(const Measured& measured) {
    return stats::sum_over_vcpus(measured.vcpus, "hlt_exits").real();
  }

 private:
  // True when the guest had crashed and runs again.
  bool restart() {
    end_ = guest_->end();
    const bool guest_died =
        end_->stop.kind == machine::Stop::Kind::kCrashed || end_->stop.kind == machine::Stop::Kind::kWedged;
    if (!guest_died || restarts_.size() >= kRestartsMaximum) return false;
    (void)base::write_all(STDERR_FILENO, end_->diagnosis);
    progress(fmt::format("the guest crashed ({}); starting it again", end_->stop.what));
    restarts_.push_back(end_->stop.what);
    guest_.reset();
    guest_ = std::make_unique<GuestRun>(guest_config_);
    end_.reset();
    boot();
    return true;
  }

  Measured measure_host(const Arm& arm) {
    NativeResult native;
    // The guest is held meanwhile: its timer interrupts would otherwise take CPU from the native run.
    guest_->machine().while_paused([&] { native = run_native(native_, config_.workload.parameters, kNativeTimeout); });
    if (native.status != 0) throw base::HostUnable(fmt::format("the workload on this host: {}", native.problem));
    return {arm, native.result.value("seconds", 0.0), {}, Json(native.result)};
  }

  Measured measure_guest(const Arm& arm) {
    if (!guest_->session().configure({{"idle_spin_us", arm.spin_us}})) throw GuestEnded();
    const auto trial = guest_->session().run(config_.workload.name, config_.workload.parameters);
    if (!trial) throw GuestEnded();
    const auto seconds = trial->result.workload.seconds.real();
    if (trial->status != 0 || !seconds) {
      throw base::Error(base::ExitStatus::kWorkloadFailed,
                        fmt::format("the workload failed in the guest with status {}", trial->status));
    }
    return {arm, *seconds, trial->result.vcpus, trial->result.workload.raw};
  }

  const CompareConfig& config_;
  std::filesystem::path native_;
  Clock::time_point start_;
  GuestRunConfig guest_config_;
  std::unique_ptr<GuestRun> guest_;
  std::optional<GuestRun::End> end_;
  nlohmann::json hello_;
  std::vector<std::string> restarts_;
  unsigned trials_ = 0;
  std::vector<Measured> search_;
};

Json trial_json(const Measured& trial) {
  Json vcpus = Json::array();
  for (const auto& vcpu : trial.vcpus) vcpus.push_back(stats::to_json(vcpu));
  return {{"arm", name_of(trial.arm)},
          {"spin_us", trial.arm.kind == Arm::Kind::kHost ? Json(nullptr) : Json(trial.arm.spin_us)},
          {"seconds", trial.seconds},
          {"workload", trial.raw},
          {"vcpus", std::move(vcpus)}};
}

Json result_json(const CompareConfig& config, const Comparison& comparison, const std::vector<Arm>& arms,
                 const std::vector<Measured>& trials, std::uint64_t seed) {
  Json rows = Json::array();
  for (const Arm& arm : arms) rows.push_back({{"name", name_of(arm)}});
  Json all = Json::array();
  for (const Measured& trial : trials) all.push_back(trial_json(trial));
  Json search = Json::array();
  for (const Measured& trial : comparison.search()) search.push_back(trial_json(trial));
  return {{"schema", kCompareSchema},
          {"seed", seed},
          {"config", config_json(config.guest, config.workload)},
          {"guest", comparison.hello()},
          {"guest_restarts", comparison.restarts()},
          {"host", host_json()},
          {"arms", std::move(rows)},
          {"trials", std::move(all)},
          {"search", std::move(search)}};
}

}  // namespace

std::vector<Arm> parse_spin_arms(std::string_view text) {
  std::vector<Arm> arms{{Arm::Kind::kHost, 0}};
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    Arm arm{Arm::Kind::kBest, 0};
    if (word != "best") {
      arm = {Arm::Kind::kGuest, parse_guest_spin_us(word)};
    }
    if (std::ranges::find(arms, arm) != arms.end()) {
      throw base::BadInput(fmt::format("--guest-spin: '{}' is given twice", word));
    }
    arms.push_back(arm);
    if (comma == text.npos) return arms;
    text.remove_prefix(comma + 1);
  }
}

int run_compare(const CompareConfig& config) {
  const std::filesystem::path native = native_workload_path(config.workload.name);
  const bool has_host = std::ranges::any_of(config.arms, [](const Arm& arm) { return arm.kind == Arm::Kind::kHost; });
  if (has_host && !std::filesystem::exists(native)) {
    throw base::HostUnable(fmt::format("the workload '{}' has not been built for this host ('{}'); ./run builds it",
                                       config.workload.name, native.string()));
  }
  std::optional<base::AtomicFile> file;
  if (config.stats) file.emplace("--stats", *config.stats);
  const std::uint64_t seed = config.seed.value_or(static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()));

  Comparison comparison(config);
  if (!comparison.has_agent()) {
    throw base::HostUnable("compare: the guest needs the built initramfs with the agent; leave --initrd out");
  }
  std::vector<Arm> arms = config.arms;
  std::vector<Measured> trials;
  std::optional<base::Error> failed;
  bool complete = true;
  try {
    comparison.boot();
    if (const auto best = std::ranges::find(arms, Arm::Kind::kBest, &Arm::kind); best != arms.end()) {
      progress("looking for the best idle_spin, one trial each");
      best->spin_us = comparison.search_best(arms);
    }
    std::mt19937_64 random(seed);
    for (unsigned repetition = 0; repetition < config.repetitions; ++repetition) {
      std::vector<Arm> order = arms;
      std::ranges::shuffle(order, random);
      for (const Arm& arm : order) trials.push_back(comparison.measure(arm));
    }
  } catch (const GuestEnded&) {
    complete = false;  // how it ended is told below
  } catch (const base::Error& error) {
    complete = false;
    failed = error;
  }
  const GuestRun::End end = comparison.finish(complete);
  if (!end.diagnosis.empty()) (void)base::write_all(STDERR_FILENO, end.diagnosis);
  if (failed) throw *failed;
  if (!complete) {
    progress(end.stop.what);
    return static_cast<int>(exit_status_of(end.stop, std::nullopt, true));
  }

  const Json document = result_json(config, comparison, arms, trials, seed);
  if (file) file->commit(document.dump(2) + "\n");
  if (!config.stats || *config.stats != "-") {
    base::write_result(compare_table(document));
  }
  return static_cast<int>(exit_status_of(end.stop, 0, true));
}

}  // namespace vmm::experiment
