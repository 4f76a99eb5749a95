// SPDX-License-Identifier: Apache-2.0
// A run's result as a plain struct, as the JSON document vmm.run/1, and as a table for the terminal.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stats/vcpu_snapshot.hpp"

namespace vmm::stats {

// What the workload said at its end: its result line, checked by the caller. Everything it said beyond these is in
// `raw`.
struct WorkloadResult {
  std::string name{};
  Value seconds{};  // Source kGuest or kPayload
  Value operations{};
  nlohmann::ordered_json raw{};  // the result line without type and trial; null: it never ended
};

// One measured interval: from the `begin` to the `end` mark of a trial.
struct TrialResult {
  std::uint64_t trial = 0;
  WorkloadResult workload{};
  std::vector<VcpuSnapshot> vcpus{};  // differences
  std::uint64_t wall_ns = 0;          // between the marks, on the host's clock
  unsigned begin_attempts = 1;        // marks sent until one was quiet
  unsigned end_attempts = 1;
};

struct RunResult {
  int exit_status = 0;
  std::string exit_reason;           // "guest powered off"
  nlohmann::ordered_json config;     // as asked
  nlohmann::ordered_json effective;  // as read back
  nlohmann::ordered_json host;
  std::vector<std::pair<std::string, double>> phases_ms;  // in order, since exec
  std::string interval;                                   // what `vcpus` covers: "begin to end of trial 0", "whole run"
  std::vector<VcpuSnapshot> vcpus{};                      // differences over `interval`
  std::optional<WorkloadResult> workload;
  std::vector<TrialResult> trials;    // all of them, if there was more than one interval
  std::vector<Agreement> agreements;  // of `vcpus`
  std::vector<std::string> notes;     // what the reader must know: "guest turned host polling off", …
};

inline constexpr std::string_view kRunSchema = "vmm.run/1";

// The document. "exit_statistics" is exit_statistics_json() of the vCPUs.
nlohmann::ordered_json to_json(const RunResult& result);

// The table: a line per vCPU and their sum, units, a foot line per source and per reason of a "-". At most 100 columns;
// ends with a newline. Where tracepoints give no IPIs, the guest's own count stands in the column, marked "g".
std::string run_table(const RunResult& result);

// Exits by reason: count, share, and time from exit to entry where measured. By tracepoint; else KVM's own counters of
// exits ("kvm.io_exits" …), which overlap and do not add up, marked so.
std::string exit_statistics_table(std::span<const VcpuSnapshot> vcpus);
nlohmann::ordered_json exit_statistics_json(std::span<const VcpuSnapshot> vcpus);

}  // namespace vmm::stats
