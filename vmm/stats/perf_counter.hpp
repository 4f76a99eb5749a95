// SPDX-License-Identifier: Apache-2.0
// One counter of a tracepoint (perf_event_open(2)). The only place that makes this system call.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

#include "base/unique_fd.hpp"
#include "stats/value.hpp"

struct perf_event_attr;

namespace vmm::stats {

// perf_event_open(2) for one thread on any CPU (-1), or for any thread (-1) on one CPU.
struct PerfOpenResult {
  base::UniqueFd fd;
  int error = 0;  // errno; then no fd
};
PerfOpenResult open_perf_event(perf_event_attr& attributes, pid_t thread, int cpu = -1) noexcept;

// Event filter of an open event, and starting it. 0 or an errno.
int set_perf_filter(int fd, const std::string& filter) noexcept;
int enable_perf_event(int fd) noexcept;

class PerfCounter {
 public:
  struct Spec {
    std::uint64_t event_id = 0;  // TraceEvent::id
    std::string filter;          // in the kernel's event-filter language; empty: everything
    pid_t thread = 0;            // 0: the calling thread; -1: all threads, then `cpu` is one
    bool inherit = false;        // threads created later count too, in the same counter
    int cpu = -1;                // -1: any
  };

  // Counts nothing; reads null with this reason.
  explicit PerfCounter(std::string reason) : reason_(std::move(reason)) {}
  // Counts from now on. Never throws: a refusal shows as the reason of every read.
  static PerfCounter open(const Spec& spec);

  bool counting() const noexcept { return fd_.valid(); }
  // A count since open(). Null with the reason when it could not be opened, or when the kernel did not keep it
  // scheduled all the time (time running < time enabled).
  Value read() const;

 private:
  base::UniqueFd fd_;
  std::string reason_;
};

// What read(2) of a counter with PERF_FORMAT_TOTAL_TIME_ENABLED|RUNNING says.
Value interpret_perf_reading(std::uint64_t count, std::uint64_t enabled_ns, std::uint64_t running_ns);

}  // namespace vmm::stats
