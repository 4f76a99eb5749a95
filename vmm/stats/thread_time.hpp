// SPDX-License-Identifier: Apache-2.0
// The host's accounting of one thread: /proc/self/task/TID/{stat,schedstat,sched,status} (proc(5), Documentation/
// scheduler/sched-stats.rst, kernel/sched/debug.c). CPU times of `stat` come in clock ticks (10 ms with CONFIG_HZ's
// USER_HZ 100), those of schedstat in ns, those of sched in ms with six decimals.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <sys/types.h>

#include "stats/vcpu_snapshot.hpp"

namespace vmm::stats {

struct ThreadStat {
  std::uint64_t user_ticks = 0;    // field 14; includes guest time
  std::uint64_t system_ticks = 0;  // field 15
  std::uint64_t guest_ticks = 0;   // field 43
  bool operator==(const ThreadStat&) const = default;
};
struct ThreadSchedstat {
  std::uint64_t on_cpu_ns = 0;
  std::uint64_t run_delay_ns = 0;
  bool operator==(const ThreadSchedstat&) const = default;
};
struct ThreadSwitches {
  std::uint64_t voluntary = 0;
  std::uint64_t involuntary = 0;
  bool operator==(const ThreadSwitches&) const = default;
};

// Pure parsers; nothing for text of another form. A comm with blanks and parentheses is handled.
std::optional<ThreadStat> parse_thread_stat(std::string_view text);
std::optional<ThreadSchedstat> parse_thread_schedstat(std::string_view text);
std::optional<ThreadSwitches> parse_thread_status(std::string_view text);
// Time that the thread was blocked, ns; nothing where the kernel does not count it (sysctl kernel.sched_schedstats=0).
std::optional<std::uint64_t> parse_thread_blocked_ns(std::string_view sched_text);

// Adds cpu_guest_ns, cpu_user_ns (guest time included: the kernel scales field 14 but not field 43, so their difference
// can be negative), cpu_system_ns, cpu_on_ns, run_delay_ns, blocked_ns, switches_voluntary and
// switches_involuntary of thread `thread` of this process; null with the reason where a file cannot be read. Never
// throws.
void merge_thread_time(VcpuSnapshot& into, pid_t thread);

}  // namespace vmm::stats
