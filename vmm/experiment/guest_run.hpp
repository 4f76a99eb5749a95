// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "boot/kernel_image.hpp"
#include "experiment/agent_session.hpp"
#include "experiment/run_config.hpp"
#include "experiment/supervisor.hpp"
#include "kvm/kvm.hpp"
#include "machine/console.hpp"
#include "machine/machine.hpp"

namespace vmm::experiment {

// Points in time of a run, milliseconds since the process was executed.
using Phases = std::vector<std::pair<std::string, double>>;

struct GuestRunConfig {
  GuestConfig guest;
  std::string workload;  // its name, where a built one may need files of its own in the guest
  ConsoleConfig console;
  bool exit_times = false;
  bool light_tracing = false;
  std::uint64_t timeout_ms = 0;
  std::uint64_t watchdog_ms = 0;
  std::uint64_t period_ms = 0;
  bool own_signals = true;  // SIGINT, SIGTERM, SIGHUP end it, SIGUSR1 dumps it; else the caller sees to them
};

// One guest with everything around it: files, VM, console, agent session, supervisor. The constructor does all that can
// fail for the user's or the host's fault, before the guest's first instruction.
class GuestRun {
 public:
  // `on_period` is called every period_ms in the supervisor's thread.
  GuestRun(const GuestRunConfig& config, std::function<void(GuestRun&)> on_period = {});
  ~GuestRun();
  GuestRun(const GuestRun&) = delete;
  GuestRun& operator=(const GuestRun&) = delete;

  void start();
  // Holds the guest, for which the watchdog then does not wait; lets it go on.
  void hold();
  void release();
  // From so long from now on the agent's words no longer count as signs of life, only the console's: an agent may be
  // alive beside a workload that has stopped for good. Nothing: they always count.
  void limit_trial(std::optional<std::chrono::milliseconds> limit);
  // The exit statistics of the running guest, to standard error.
  void dump_statistics();
  AgentSession& session() noexcept { return session_; }
  machine::Machine& machine() noexcept { return *machine_; }
  // Waits until the guest is over by itself, or was stopped.
  void wait_for_stop();
  // Ends the guest (when it has not ended) and tells how it went.
  struct End {
    machine::Stop stop;
    std::string diagnosis;  // several lines; empty when all went well
  };
  End end();
  const Phases& phases() const noexcept { return phases_; }
  void note_phase(const std::string& name);
  bool has_agent() const noexcept { return has_agent_; }

 private:
  bool is_overdue() const;
  void give_up(machine::Stop::Kind kind, const std::string& what);

  GuestRunConfig config_;
  Phases phases_;
  bool has_agent_ = false;
  std::atomic<bool> held_{false};
  std::atomic<std::chrono::steady_clock::time_point> trial_deadline_{std::chrono::steady_clock::time_point::max()};
  std::optional<base::StreamFile> console_file_;
  std::unique_ptr<RawTerminal> raw_terminal_;
  machine::Console console_;
  kvm::System system_;
  AgentSession session_;
  std::unique_ptr<machine::Machine> machine_;
  std::function<void(GuestRun&)> on_period_;
  std::string diagnosis_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool has_stopped_ = false;
  std::unique_ptr<Supervisor> supervisor_;
};

// Milliseconds since this process was executed (/proc/self/stat, field 22, to the clock tick; then CLOCK_MONOTONIC).
double ms_since_exec();

}  // namespace vmm::experiment
