// SPDX-License-Identifier: Apache-2.0
#include "experiment/trial_runner.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/file.hpp"
#include "experiment/native_workload.hpp"
#include "experiment/proof.hpp"
#include "experiment/run.hpp"
#include "stats/energy.hpp"
#include "stats/run_report.hpp"

namespace vmm::experiment {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kNativeTimeout{30};
// A trial this many times as long as the longest so far is stuck, whatever its agent says; before there is one, as long
// as the host may take.
constexpr int kOverdue = 20;
constexpr std::chrono::seconds kOverdueLeast{10};
constexpr std::chrono::seconds kNeighbourTimeout{60};
// A guest that crashes (under emulation the emulator may be at fault) is started again so often; each time is said and
// kept in the result.
constexpr std::size_t kRestartsMaximum = 10;
// KVM's other statistics by their own names: for single runs. Here they would be most of a result file.
constexpr std::string_view kOtherKvmStats = "kvm.";

Json vcpus_json(std::vector<stats::VcpuSnapshot> vcpus) {
  Json json = Json::array();
  for (stats::VcpuSnapshot& vcpu : vcpus) {
    std::erase_if(vcpu.counters, [](const auto& counter) { return counter.first.starts_with(kOtherKvmStats); });
    std::erase_if(vcpu.histograms, [](const auto& histogram) { return histogram.first.starts_with(kOtherKvmStats); });
    json.push_back(stats::to_json(vcpu));
  }
  return json;
}

bool has_knob(const nlohmann::json& hello, const char* name) {
  const auto knobs = hello.find("knobs");
  return knobs != hello.end() && knobs->is_array() && std::ranges::find(*knobs, name) != knobs->end();
}

nlohmann::json settings_of(const GuestConfig& guest, const nlohmann::json& hello, bool record_gaps) {
  nlohmann::json settings = nlohmann::json::object();
  if (guest.guest_spin_us || has_knob(hello, "idle_spin")) settings["idle_spin_us"] = guest.guest_spin_us.value_or(0);
  if (has_knob(hello, "record_gaps")) settings["record_gaps"] = record_gaps ? 1 : 0;
  if (guest.guest_halt_poll_ns) settings["guest_halt_poll_ns"] = *guest.guest_halt_poll_ns;
  return settings;
}

}  // namespace

// One VM configuration with its guest.
struct TrialRunner::Guest {
  GuestConfig boot;
  std::vector<std::string> arms;
  bool may_lack = true;
  std::unique_ptr<GuestRun> run;
  nlohmann::json hello;
  bool held = false;

  void hold() {
    if (!held) run->hold();
    held = true;
  }
  void release() {
    if (held) run->release();
    held = false;
  }
};

TrialRunner::TrialRunner(const Comparison& comparison, Config config)
    : comparison_(comparison), config_(std::move(config)) {
  bool host = false;
  for (const Arm& arm : comparison.arms) {
    if (arm.host) {
      host = true;
      continue;
    }
    GuestConfig wanted = boot_config(arm.guest);
    auto found = std::ranges::find_if(guests_, [&](const auto& guest) { return guest->boot == wanted; });
    if (found == guests_.end()) {
      guests_.push_back(std::make_unique<Guest>());
      guests_.back()->boot = std::move(wanted);
      found = guests_.end() - 1;
    }
    (*found)->arms.push_back(arm.name);
    (*found)->may_lack = (*found)->may_lack && arm.may_lack;
  }
  const GuestConfig& guest = std::ranges::find(comparison.arms, false, &Arm::host)->guest;
  host_workload_ = guest.workload_file.empty() ? native_workload_path(comparison.workload.name) : guest.workload_file;
  std::vector<std::filesystem::path> needed;
  if (host) needed.push_back(host_workload_);
  if (comparison.neighbour) needed.push_back(native_workload_path("neighbour"));
  for (const std::filesystem::path& path : needed) {
    if (!std::filesystem::exists(path)) {
      throw base::HostUnable(fmt::format("the workload '{}' has not been built for this host ('{}'); ./run builds it",
                                         path.filename().string(), path.string()));
    }
  }
}

TrialRunner::~TrialRunner() = default;

void TrialRunner::boot() {
  const auto start = Clock::now();
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    try {
      boot(**guest);
      ++guest;
    } catch (const base::HostUnable& error) {
      {
        const std::lock_guard lock(mutex_);
        running_ = nullptr;
      }
      if (!(*guest)->may_lack) throw;
      for (const std::string& arm : (*guest)->arms) {
        left_out_[arm] = error.what();
        config_.progress(fmt::format("without '{}': {}", arm, error.what()));
      }
      guest = guests_.erase(guest);
    }
  }
  boots_ += Clock::now() - start;
}

void TrialRunner::boot(Guest& guest) {
  config_.progress(fmt::format("booting the guest of {}", fmt::join(guest.arms, ", ")));
  GuestRunConfig run;
  run.guest = guest.boot;
  run.workload = comparison_.workload.name;
  run.console = config_.console;
  run.timeout_ms = config_.timeout_ms;
  run.watchdog_ms = config_.watchdog_ms;
  run.own_signals = false;
  // Every traced exit costs time, and a guest that halts exits more: counting them all would flatter the spinning arms.
  run.light_tracing = true;
  {
    const std::lock_guard lock(mutex_);
    if (interrupted_) throw ComparisonEnded(*interrupted_);
    running_ = nullptr;
  }
  guest.held = false;
  auto created = std::make_unique<GuestRun>(run);
  {
    const std::lock_guard lock(mutex_);
    guest.run = std::move(created);
    running_ = &guest;
  }
  guest.run->start();
  const auto hello = guest.run->session().wait_for_hello();
  if (!hello) {
    // Where KVM accepts a pass-through and then cannot enter the guest, it dies at once, each time.
    if (guest.may_lack && guest.hello.is_null()) {
      const GuestRun::End end = guest.run->end();
      if (end.stop.kind != machine::Stop::Kind::kCrashed) throw ComparisonEnded(end.stop);
      throw base::HostUnable(fmt::format("its guest does not boot here: {}", end.stop.what));
    }
    restart_or_end(guest);
    return;
  }
  guest.hello = *hello;
  verify_idle(guest.boot, guest.hello);
  guest.hold();
}

Json TrialRunner::run(const Arm& arm, bool record_gaps) {
  if (arm.host) return run_host(arm);
  const GuestConfig wanted = boot_config(arm.guest);
  Guest& guest = **std::ranges::find_if(guests_, [&](const auto& candidate) { return candidate->boot == wanted; });
  while (true) {
    const auto start = Clock::now();
    {
      const std::lock_guard lock(mutex_);
      if (interrupted_) throw ComparisonEnded(*interrupted_);
      running_ = &guest;
    }
    guest.release();
    Json trial = run_guest(guest, arm, record_gaps);
    if (!trial.is_null()) {
      guest.hold();
      const std::lock_guard lock(mutex_);
      running_ = nullptr;
      return trial;
    }
    restart_or_end(guest);
    crashes_ += Clock::now() - start;
  }
}

// Boots a guest that has crashed again; for any other end throws.
void TrialRunner::restart_or_end(Guest& guest) {
  const GuestRun::End end = guest.run->end();
  (void)base::write_all(STDERR_FILENO, end.diagnosis);
  const bool died = end.stop.kind == machine::Stop::Kind::kCrashed || end.stop.kind == machine::Stop::Kind::kWedged;
  if (!died || restarts_.size() >= kRestartsMaximum) throw ComparisonEnded(end.stop);
  config_.progress(fmt::format("the guest crashed ({}); starting it again", end.stop.what));
  restarts_.push_back(end.stop.what);
  {
    const std::lock_guard lock(mutex_);
    running_ = nullptr;
    guest.run.reset();
  }
  boot(guest);
}

Json TrialRunner::run_host(const Arm& arm) {
  const stats::EnergyReading before = stats::read_energy();
  const auto run_unless_cancelled = [&]() -> NativeResult {
    try {
      return run_native(host_workload_, comparison_.workload.parameters, kNativeTimeout, &cancelled_);
    } catch (const base::HostUnable&) {
      if (cancelled_) return {1, "cancelled", {}};
      throw;
    }
  };
  const NativeResult native = run_unless_cancelled();
  const stats::EnergyReading after = stats::read_energy();
  if (cancelled_) {
    const std::lock_guard lock(mutex_);
    throw ComparisonEnded(*interrupted_);
  }
  if (native.status != 0) throw base::HostUnable(fmt::format("the workload on this host: {}", native.problem));
  const auto field = [&](const char* name) {
    const auto found = native.result.find(name);
    return found != native.result.end() && found->is_number() ? Json(*found) : Json(nullptr);
  };
  // The user's own program may say anything.
  constexpr double kSecondsMaximum = 1e9;
  const Json seconds = field("seconds");
  const bool possible = seconds.is_number() && seconds.get<double>() > 0 && seconds.get<double>() < kSecondsMaximum;
  Json because = Json::array();
  if (!possible) because.push_back(fmt::format("the workload on this host said seconds: {}", seconds.dump()));
  return {{"arm", arm.name},
          {"seconds", possible ? seconds : Json(nullptr)},
          {"operations", field("operations")},
          {"valid", possible},
          {"invalid_because", std::move(because)},
          {"workload", Json(native.result)},
          {"energy", stats::to_json(stats::energy_between(before, after))},
          {"vcpus", Json::array()}};
}

std::vector<unsigned> TrialRunner::neighbour_cpus(const GuestConfig& guest) const {
  if (!guest.pin.empty()) return guest.pin;
  std::vector<unsigned> cpus;
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  for (unsigned cpu = 0; cpu < std::min<unsigned>(guest.cpus, static_cast<unsigned>(std::max(online, 1L))); ++cpu) {
    cpus.push_back(cpu);
  }
  return cpus;
}

// The trial, or null when the guest ended.
Json TrialRunner::run_guest(Guest& guest, const Arm& arm, bool record_gaps) {
  AgentSession& session = guest.run->session();
  guest.run->machine().set_host_halt_poll_ns(arm.guest.host_halt_poll_ns.value_or(0));
  const nlohmann::json settings = settings_of(arm.guest, guest.hello, record_gaps);
  nlohmann::json configured = nlohmann::json::object();
  if (!settings.empty()) {
    const auto answer = session.configure(settings);
    if (!answer) return nullptr;
    configured = *answer;
  }
  std::unique_ptr<NativeTask> neighbour;
  if (comparison_.neighbour) {
    std::string cpus;
    for (const unsigned cpu : neighbour_cpus(arm.guest)) cpus += fmt::format("{}{}", cpus.empty() ? "" : ",", cpu);
    neighbour = std::make_unique<NativeTask>(native_workload_path("neighbour"),
                                             std::map<std::string, std::string>{{"cpus", cpus}}, kNeighbourTimeout);
  }
  guest.run->limit_trial(
      longest_.count() == 0 ? kNativeTimeout : std::max<std::chrono::milliseconds>(kOverdue * longest_, kOverdueLeast));
  const stats::EnergyReading energy_before = stats::read_energy();
  const auto trial = session.run(comparison_.workload.name, comparison_.workload.parameters);
  const stats::EnergyReading energy_after = stats::read_energy();
  guest.run->limit_trial(std::nullopt);
  Json beside = nullptr;
  if (neighbour) {
    const NativeResult result = neighbour->stop(kNeighbourTimeout);
    if (result.status != 0) throw base::HostUnable(fmt::format("the neighbour on this host: {}", result.problem));
    beside = Json(result.result);
  }
  if (!trial) return nullptr;

  const auto wall =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(trial->result.wall_ns));
  longest_ = std::max(longest_, wall);
  const stats::WorkloadResult& workload = trial->result.workload;
  Json proofs = Json::array();
  Json because = Json::array();
  for (const Proof& proof : prove(arm.guest, guest.hello, configured, trial->result.vcpus)) {
    if (proof.holds == false)
      because.push_back(fmt::format("{}: asked {}, seen {}", proof.what, proof.asked, proof.seen));
    proofs.push_back(to_json(proof));
  }
  const auto seconds = workload.seconds.real();
  if (trial->status != 0) because.push_back(fmt::format("the workload failed with status {}", trial->status));
  if (!seconds) because.push_back(fmt::format("no time: {}", workload.seconds.reason()));
  const auto operations = workload.operations.integer();
  return {{"arm", arm.name},
          {"seconds", seconds ? Json(*seconds) : Json(nullptr)},
          {"operations", operations ? Json(*operations) : Json(nullptr)},
          {"valid", because.empty()},
          {"invalid_because", std::move(because)},
          {"proof", std::move(proofs)},
          {"workload", workload.raw},
          {"neighbour", std::move(beside)},
          {"energy", stats::to_json(stats::energy_between(energy_before, energy_after))},
          {"wall_ns", trial->result.wall_ns},
          {"vcpus", vcpus_json(trial->result.vcpus)}};
}

void TrialRunner::interrupt(machine::Stop stop) {
  const std::lock_guard lock(mutex_);
  if (!interrupted_) interrupted_ = std::move(stop);
  cancelled_ = true;
  if (running_ != nullptr && running_->run) running_->run->machine().request_stop(*interrupted_);
}

void TrialRunner::dump_statistics() {
  const std::lock_guard lock(mutex_);
  if (running_ != nullptr && running_->run) {
    running_->run->dump_statistics();
  } else {
    (void)base::write_all(STDERR_FILENO, "compare: no guest runs at the moment\n");
  }
}

void TrialRunner::finish() {
  for (const auto& guest : guests_) {
    if (!guest->run) continue;
    guest->release();
    guest->run->session().power_off();
    guest->run->wait_for_stop();
    const GuestRun::End end = guest->run->end();
    if (!end.diagnosis.empty()) (void)base::write_all(STDERR_FILENO, end.diagnosis);
  }
}

std::map<std::string, std::string> TrialRunner::notes() const {
  std::map<std::string, std::string> notes;
  const Json host = host_json();
  const bool emulated = host.value("cpu", std::string()).find("QEMU TCG") != std::string::npos;
  if (!emulated || host.value("cpus_online", 0) < 2) return notes;
  for (const Arm& arm : comparison_.arms) {
    if (arm.guest.guest_idle == GuestIdle::kMwait && !left_out_.contains(arm.name)) {
      notes[arm.name] = "QEMU's MWAIT with two or more CPUs is only a PAUSE: this arm polls";
    }
  }
  return notes;
}

Json TrialRunner::guests_json() const {
  Json json = Json::array();
  for (const auto& guest : guests_) json.push_back({{"arms", guest->arms}, {"guest", Json(guest->hello)}});
  return json;
}

}  // namespace vmm::experiment
