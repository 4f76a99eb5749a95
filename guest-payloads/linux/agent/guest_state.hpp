// SPDX-License-Identifier: Apache-2.0
// What this guest is, and what its kernel has counted.
#pragma once

#include <string>
#include <vector>

#include "agent/files.hpp"
#include "agent/json.hpp"

namespace guest {

inline constexpr const char* kIdleSpinKnob = "/sys/kernel/sched/idle_spin";
inline constexpr const char* kIdleSpinStats = "/sys/kernel/debug/idle_spin/stats";

struct TimerState {
  bool hres_active = false;  // on every online CPU
  std::string clock_event;   // the one of every CPU; "mixed" where they differ, "unknown" where none is named
  Json cpus;                 // [{"id":0,"hres_active":true,"clock_event":"lapic-deadline"}, …]
};
TimerState read_timer_state(const Files& files);

// The fields of a hello line, without "type" and "agent": each is read from where the kernel says it, null where
// it says nothing.
Json describe_guest(const Files& files);

// The `guest` object of a mark: {"vcpus":[…]}. Throws std::runtime_error when /proc/interrupts cannot be understood.
Json read_counters(const Files& files);

// RES and CAL of every CPU: what must not change around a mark. The same errors.
std::vector<std::uint64_t> read_ipi_counts(const Files& files);

}  // namespace guest
