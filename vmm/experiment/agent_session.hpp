// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stats/run_report.hpp"
#include "stats/vcpu_snapshot.hpp"

namespace vmm::experiment {

// The host's side of the conversation with the guest's agent, or with a payload that only reports (docs/protocol.md).
//
// Lines arrive in a vCPU thread, within the exit of their newline; the experiment asks from its own thread and waits.
// What the guest says is believed only where it is of the right form and in the right order; the first thing that is
// not ends the session with a diagnosis.
class AgentSession {
 public:
  // Reads every source of every vCPU at one instant, all of them outside KVM_RUN. No value while an IPI is still under
  // way (accepted by a local APIC, not yet taken): the guest is told to try the mark again.
  using MarkSource = std::function<std::optional<std::vector<stats::VcpuSnapshot>>()>;
  enum class Speaker { kAgent, kPayload };

  AgentSession(Speaker speaker, MarkSource marks);

  // vCPU threads: one line in, the reply out.
  std::string on_line(std::string_view line, bool complete);

  // Grows with every line: the watchdog's sign of life.
  std::uint64_t lines() const;

  // ---- the experiment's thread ----
  // Waits for the agent's hello; no value when the session ended first.
  std::optional<nlohmann::json> wait_for_hello();
  // Sends "configure" with these settings; the values read back, or no value when the session ended. Throws HostUnable
  // when the guest lacks a knob or reads back another value, naming it.
  std::optional<nlohmann::json> configure(const nlohmann::json& settings);
  // Runs a workload; its trial with all marks, or no value when the session ended. A workload that fails is a result.
  struct Trial {
    stats::TrialResult result;
    int status = 0;  // the workload's own
  };
  std::optional<Trial> run(const std::string& workload, const std::map<std::string, std::string>& args);
  // A payload starts its trial by itself: waits for its result.
  std::optional<Trial> wait_for_payload_trial();
  // A trial has begun and not ended: for a run that ended early.
  bool trial_unfinished() const;
  void power_off();

  // Ends the session from outside (the VM stopped): every wait returns no value.
  void close();
  // What the guest did wrong, if it did: one line.
  std::optional<std::string> violation() const;

 private:
  enum class Phase { kNone, kCommanded, kBegun, kEnded };
  using Json = nlohmann::json;
  struct Mark {
    std::chrono::steady_clock::time_point time{};
    std::vector<stats::VcpuSnapshot> vcpus;
    unsigned attempts = 0;
    bool confirmed = false;  // by the speaker: its own counters did not move around the mark
  };

  std::string handle(const Json& message);
  std::string handle_mark(const Json& message);
  void handle_mark_ok(const Json& message);
  void confirm(Mark& mark, const Json& message);
  void handle_result(const Json& message);
  std::string next_command();
  std::string violate(std::string what);
  std::optional<Json> wait_for_answer(std::unique_lock<std::mutex>& lock);
  Trial take_trial(Json result);

  Speaker speaker_;
  MarkSource marks_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::optional<std::string> violation_;
  std::uint64_t lines_ = 0;

  std::optional<Json> hello_;
  std::deque<std::string> commands_;
  std::deque<Json> answers_;  // configured, error, result

  Phase phase_ = Phase::kNone;
  std::uint64_t trial_ = 0;
  Mark begin_;
  Mark end_;
};

}  // namespace vmm::experiment
