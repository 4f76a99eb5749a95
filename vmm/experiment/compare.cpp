// SPDX-License-Identifier: Apache-2.0
#include "experiment/compare.hpp"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <numeric>
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
  std::optional<std::uint64_t> operations;
  std::vector<stats::VcpuSnapshot> vcpus;  // of a guest trial
  nlohmann::ordered_json raw;
};

// The guest stopped before the comparison was through.
class GuestEnded : public std::exception {};

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
  Comparison(const CompareConfig& config, GuestRun& guest, std::filesystem::path native)
      : config_(config), guest_(guest), native_(std::move(native)), start_(Clock::now()) {}

  Measured measure(const Arm& arm) {
    Measured measured = arm.kind == Arm::Kind::kHost ? measure_host(arm) : measure_guest(arm);
    ++trials_;
    const auto elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
    progress(fmt::format("[{:6.1f} s] trial {}: {}: {:.3f} s", elapsed, trials_, name_of(arm), measured.seconds));
    return measured;
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
  const nlohmann::json& configured() const noexcept { return configured_; }

  static std::optional<double> hlt_exits(const Measured& measured) {
    return stats::sum_over_vcpus(measured.vcpus, "hlt_exits").real();
  }

 private:
  Measured measure_host(const Arm& arm) {
    NativeResult native;
    // The guest is held meanwhile: its timer interrupts would otherwise take CPU from the native run.
    guest_.machine().while_paused([&] { native = run_native(native_, config_.workload.parameters, kNativeTimeout); });
    if (native.status != 0) throw base::HostUnable(fmt::format("the workload on this host: {}", native.problem));
    Measured measured{arm, native.result.value("seconds", 0.0), std::nullopt, {}, Json(native.result)};
    if (native.result.contains("operations")) measured.operations = native.result.value("operations", std::uint64_t{0});
    return measured;
  }

  Measured measure_guest(const Arm& arm) {
    const nlohmann::json settings{{"idle_spin_us", arm.spin_us}};
    const auto read_back = guest_.session().configure(settings);
    if (!read_back) throw GuestEnded();
    if (read_back->value("idle_spin_us", std::uint64_t{~0ULL}) != arm.spin_us) {
      throw base::HostUnable(fmt::format("the guest did not take idle_spin={}us", arm.spin_us));
    }
    configured_ = *read_back;
    const auto trial = guest_.session().run(config_.workload.name, config_.workload.parameters);
    if (!trial) throw GuestEnded();
    const auto seconds = trial->result.workload.seconds.real();
    if (trial->status != 0 || !seconds) {
      throw base::Error(base::ExitStatus::kWorkloadFailed,
                        fmt::format("the workload failed in the guest with status {}", trial->status));
    }
    return {arm, *seconds, trial->result.workload.operations.integer(), trial->result.vcpus,
            trial->result.workload.raw};
  }

  const CompareConfig& config_;
  GuestRun& guest_;
  std::filesystem::path native_;
  Clock::time_point start_;
  unsigned trials_ = 0;
  std::vector<Measured> search_;
  nlohmann::json configured_;
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
                 const std::vector<Measured>& trials, std::uint64_t seed, const nlohmann::json& hello) {
  Json rows = Json::array();
  for (const Arm& arm : arms) rows.push_back({{"name", name_of(arm)}});
  Json all = Json::array();
  for (const Measured& trial : trials) all.push_back(trial_json(trial));
  Json search = Json::array();
  for (const Measured& trial : comparison.search()) search.push_back(trial_json(trial));
  return {{"schema", kCompareSchema},
          {"seed", seed},
          {"config", config_json(config.guest, config.workload)},
          {"guest", hello},
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
      const std::uint64_t ns = base::parse_duration_ns("--guest-spin", word, 1'000, {0, kGuestSpinMaximumUs * 1'000});
      if (ns % 1'000 != 0) {
        throw base::BadInput(fmt::format("--guest-spin: '{}' is not a whole number of microseconds", word));
      }
      arm = {Arm::Kind::kGuest, static_cast<std::uint32_t>(ns / 1'000)};
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

  GuestRunConfig guest_config;
  guest_config.guest = config.guest;
  guest_config.console = config.console;
  guest_config.timeout_ms = config.timeout_ms;
  GuestRun guest(guest_config);
  if (!guest.has_agent())
    throw base::HostUnable("compare: the guest needs the built initramfs with the agent; leave --initrd out");
  progress("booting the guest");
  guest.start();

  Comparison comparison(config, guest, native);
  std::vector<Arm> arms = config.arms;
  std::vector<Measured> trials;
  std::optional<nlohmann::json> hello;
  std::optional<base::Error> failed;
  bool complete = false;
  try {
    hello = guest.session().wait_for_hello();
    if (!hello) throw GuestEnded();
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
    complete = true;
    guest.session().power_off();
    guest.wait_for_stop();
  } catch (const GuestEnded&) {
  } catch (const base::Error& error) {
    failed = error;
  }
  const GuestRun::End end = guest.end();
  if (!end.diagnosis.empty()) (void)base::write_all(STDERR_FILENO, end.diagnosis);
  if (failed) throw *failed;
  if (!complete) {
    progress(end.stop.what);
    return static_cast<int>(exit_status_of(end.stop, std::nullopt, true));
  }

  const Json document = result_json(config, comparison, arms, trials, seed, *hello);
  if (file) file->commit(document.dump(2) + "\n");
  if (!config.stats || *config.stats != "-") {
    if (const int error = base::write_all(STDOUT_FILENO, compare_table(document)); error != 0) {
      throw base::SystemError("write of the table to standard output", error);
    }
  }
  return static_cast<int>(exit_status_of(end.stop, 0, true));
}

}  // namespace vmm::experiment
