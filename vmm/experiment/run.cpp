// SPDX-License-Identifier: Apache-2.0
#include "experiment/run.hpp"

#include <chrono>
#include <fmt/format.h>
#include <fstream>
#include <mutex>
#include <optional>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/file.hpp"
#include "experiment/guest_run.hpp"
#include "experiment/supervisor.hpp"
#include "stats/run_report.hpp"

namespace vmm::experiment {
namespace {

using Json = nlohmann::ordered_json;

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return text;
}

constexpr std::size_t kUnwrittenLimitBytes = 16 << 20;
constexpr std::chrono::milliseconds kSamplePatience{50};

// What is no UTF-8 (a file's name may be) is replaced: a result must not be lost for it.
std::string dumped(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Where the result goes. As one document it appears whole or not at all; as a time series its lines are written as they
// come, the document last.
class ResultSink {
 public:
  ResultSink(const std::optional<std::filesystem::path>& path, bool series) {
    if (!path) return;
    if (!series) {
      file_.emplace("--stats", *path);
      return;
    }
    if (*path == "-") {
      stream_fd_ = STDOUT_FILENO;
      return;
    }
    stream_.emplace("--stats", *path);
    stream_fd_ = stream_->fd();
  }

  // The guest is about to start: an older time series goes.
  void begin() {
    if (stream_) stream_->begin();
  }

  void sample(const Json& json) {
    const std::lock_guard lock(mutex_);
    if (stream_fd_ < 0 || error_ != 0) return;
    // The supervisor's thread is here, which also ends the run: a reader that does not read must not hold it.
    if (unwritten_.size() > kUnwrittenLimitBytes) {
      ++dropped_;
      return;
    }
    unwritten_ += dumped(json, -1) + "\n";
    error_ = base::write_some(stream_fd_, unwritten_, kSamplePatience);
  }

  void finish(const Json& json) {
    const std::lock_guard lock(mutex_);
    if (file_) {
      file_->commit(dumped(json, 2) + "\n");
    } else if (stream_fd_ >= 0) {
      if (dropped_ > 0) {
        const std::string text = fmt::format("vmm: --stats: {} samples were dropped: nobody read them\n", dropped_);
        (void)base::write_all(STDERR_FILENO, text);
      }
      if (error_ == 0) error_ = base::write_all(stream_fd_, unwritten_ + dumped(json, -1) + "\n");
      if (error_ != 0) throw base::SystemError("write of the --stats time series", error_);
    }
  }

 private:
  std::mutex mutex_;
  std::optional<base::AtomicFile> file_;
  std::optional<base::StreamFile> stream_;
  int stream_fd_ = -1;
  std::string unwritten_;
  std::size_t dropped_ = 0;
  int error_ = 0;
};

Json sample_json(double ms, const std::vector<stats::VcpuSnapshot>& vcpus) {
  Json list = Json::array();
  for (const auto& vcpu : vcpus) list.push_back(stats::to_json(vcpu));
  return {{"schema", "vmm.sample/1"},
          {"ms_since_exec", ms},
          {"covers", "since the vCPUs started"},
          {"vcpus", std::move(list)}};
}

// What the agent must be told.
nlohmann::json settings_of(const GuestConfig& guest) {
  nlohmann::json settings = nlohmann::json::object();
  if (guest.guest_spin_us) settings["idle_spin_us"] = *guest.guest_spin_us;
  if (guest.guest_halt_poll_ns) settings["guest_halt_poll_ns"] = *guest.guest_halt_poll_ns;
  return settings;
}

}  // namespace

void verify_idle(const GuestConfig& guest, const nlohmann::json& hello) {
  if (guest.guest_idle != GuestIdle::kHaltpoll) return;
  const auto field = hello.find("idle_driver");
  const std::string driver = field != hello.end() && field->is_string() ? field->get<std::string>() : "unknown";
  if (driver != "haltpoll") {
    throw base::HostUnable(
        fmt::format("--guest-idle=haltpoll: the guest's cpuidle driver is '{}'; its kernel needs "
                    "CONFIG_HALTPOLL_CPUIDLE",
                    driver));
  }
}

Json host_json() {
  utsname names{};
  ::uname(&names);
  std::string model;
  std::string microcode;
  std::ifstream cpuinfo("/proc/cpuinfo");
  bool hypervisor = false;
  for (std::string line; std::getline(cpuinfo, line) && !line.empty();) {
    if (line.starts_with("model name")) model = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("microcode")) microcode = line.substr(std::min(line.size(), line.find(':') + 2));
    if (line.starts_with("flags")) hypervisor = line.find(" hypervisor") != std::string::npos;
  }
  Json modules = Json::object();
  for (const char* module : {"kvm", "kvm_intel", "kvm_amd"}) {
    Json parameters = Json::object();
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(fmt::format("/sys/module/{}/parameters", module), error)) {
      parameters[entry.path().filename().string()] = first_line(entry.path());
    }
    if (!error) modules[module] = std::move(parameters);
  }
  Json mitigations = Json::object();
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/cpu/vulnerabilities", error)) {
    mitigations[entry.path().filename().string()] = first_line(entry.path());
  }
  const auto or_null = [](std::string text) { return text.empty() ? Json(nullptr) : Json(std::move(text)); };
  return {{"kernel", names.release},
          {"cpu", model},
          {"microcode", or_null(microcode)},
          {"cpus_online", ::sysconf(_SC_NPROCESSORS_ONLN)},
          {"is_itself_a_guest", hypervisor},
          {"cpufreq_governor", or_null(first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))},
          {"mitigations", std::move(mitigations)},
          {"clocksource", first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource")},
          {"kvm_modules", std::move(modules)}};
}

Json config_json(const GuestConfig& guest, const base::NamedParameters& workload) {
  Json json = config_json(guest);
  if (!guest.payload) json["workload"] = {{"name", workload.name}, {"args", workload.parameters}};
  return json;
}

Json config_json(const GuestConfig& guest) {
  Json json;
  if (guest.payload) {
    json["payload"] = {{"name", guest.payload->name}, {"args", guest.payload->parameters}};
  } else {
    json["kernel"] =
        guest.kernel.empty() ? Json(std::string("built:") + name_of(guest.flavour)) : Json(guest.kernel.string());
    json["cmdline"] = guest.cmdline;
    json["workload_file"] = guest.workload_file.empty() ? Json(nullptr) : Json(guest.workload_file.string());
  }
  json["cpus"] = guest.cpus;
  json["memory_bytes"] = guest.memory_bytes;
  json["pin"] = guest.pin;
  const auto optional = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  json["guest_spin_us"] = optional(guest.guest_spin_us);
  json["guest_idle"] = guest.guest_idle ? Json(name_of(*guest.guest_idle)) : Json(nullptr);
  json["guest_halt_poll_ns"] = optional(guest.guest_halt_poll_ns);
  json["host_halt_poll_ns"] = optional(guest.host_halt_poll_ns);
  json["disable_exits_mask"] = guest.disable_exits;
  json["irqchip"] = "kernel";
  return json;
}

base::ExitStatus exit_status_of(const machine::Stop& stop, std::optional<int> workload_status, bool workload_expected) {
  using base::ExitStatus;
  using Kind = machine::Stop::Kind;
  switch (stop.kind) {
    case Kind::kCrashed:
    case Kind::kWedged:
    case Kind::kMisbehaved:
      return ExitStatus::kGuestCrashed;
    case Kind::kTimeout:
      return ExitStatus::kTimeout;
    case Kind::kInterrupted:
      return static_cast<ExitStatus>(128 + stop.value);  // as a shell reports it
    case Kind::kPayloadExit: {
      // Its value is the status, but where that says something else: 2, 3, 4 and 124 on are the VMM's own words.
      const bool free = stop.value <= 1 || (stop.value > 4 && stop.value < 124);
      return free ? static_cast<ExitStatus>(stop.value) : ExitStatus::kWorkloadFailed;
    }
    case Kind::kPoweredOff:
    case Kind::kReset:
    case Kind::kFinished:
      break;
  }
  if (!workload_expected) return ExitStatus::kOk;
  return workload_status == 0 ? ExitStatus::kOk : ExitStatus::kWorkloadFailed;
}

int run_once(const RunConfig& config) {
  ResultSink sink(config.stats, config.stats_interval_ms != 0);
  GuestRunConfig guest_config;
  guest_config.guest = config.guest;
  guest_config.console = config.console;
  guest_config.exit_times = config.exit_times;
  guest_config.timeout_ms = config.timeout_ms;
  guest_config.workload = config.workload.name;
  guest_config.watchdog_ms = config.watchdog_ms;
  guest_config.period_ms = config.stats_interval_ms;
  const bool is_payload = config.guest.payload.has_value();

  GuestRun run(guest_config,
               [&sink](GuestRun& self) { sink.sample(sample_json(ms_since_exec(), self.machine().snapshot())); });
  if (!run.has_agent() && !is_payload && (config.guest.guest_spin_us || config.guest.guest_halt_poll_ns)) {
    throw base::HostUnable(fmt::format(
        "{}: a guest with an initrd of its own has no agent to set and prove it; leave --initrd out, or put "
        "{} on --cmdline",
        config.guest.guest_spin_us ? "--guest-spin" : "--guest-halt-poll",
        config.guest.guest_spin_us ? "idle_spin=N" : "haltpoll.guest_halt_poll_ns=N"));
  }

  stats::RunResult result;
  result.config = config_json(config.guest, config.workload);
  result.host = host_json();
  sink.begin();
  run.start();

  std::optional<AgentSession::Trial> trial;
  std::optional<base::HostUnable> refused;
  try {
    if (is_payload) {
      trial = run.session().wait_for_payload_trial();
      run.wait_for_stop();
    } else if (run.has_agent()) {
      if (const auto hello = run.session().wait_for_hello()) {
        run.note_phase("agent_ready");
        result.effective = *hello;
        verify_idle(config.guest, *hello);
        const auto configured = run.session().configure(settings_of(config.guest));
        if (configured) {
          result.effective.update(Json(*configured));
          trial = run.session().run(config.workload.name, config.workload.parameters);
          if (trial) run.note_phase("workload_end");
        }
        run.session().power_off();
      }
      run.wait_for_stop();
    } else {
      run.wait_for_stop();
    }
  } catch (const base::HostUnable& error) {
    refused = error;
  }
  const std::vector<stats::VcpuSnapshot> whole = run.machine().snapshot_paused();
  const GuestRun::End end = run.end();
  // Nobody reads signals from here on: they do again what they do to any program that writes its result.
  unblock_supervised_signals();
  if (refused) throw *refused;

  result.phases_ms = run.phases();
  result.exit_reason = end.stop.what;
  std::optional<int> workload_status;
  if (trial) {
    workload_status = trial->status;
    result.interval = fmt::format("begin to end of trial {}", trial->result.trial);
    result.vcpus = trial->result.vcpus;
    result.workload = trial->result.workload;
  }
  if (result.vcpus.empty()) {
    result.interval = "whole run, since the vCPUs started";
    result.vcpus = whole;
    if (run.session().trial_unfinished()) result.notes.push_back("the trial did not end: counters cover the whole run");
  }
  for (const auto& vcpu : result.vcpus) {
    for (auto& agreement : stats::compare_sources(vcpu)) result.agreements.push_back(std::move(agreement));
  }
  const base::ExitStatus status = exit_status_of(end.stop, workload_status, !is_payload && run.has_agent());
  result.exit_status = static_cast<int>(status);

  if (!end.diagnosis.empty()) (void)base::write_all(STDERR_FILENO, end.diagnosis);
  if (status != base::ExitStatus::kOk) {
    (void)base::write_all(STDERR_FILENO, fmt::format("vmm: {}\n", end.stop.what));
  }
  sink.finish(stats::to_json(result));
  if (!config.stats || *config.stats != "-") {
    const std::string table = stats::run_table(result) + "\n" + stats::exit_statistics_table(result.vcpus);
    base::write_result(table);
  }
  return result.exit_status;
}

}  // namespace vmm::experiment
