// SPDX-License-Identifier: Apache-2.0
// Time from each exit to the next entry, by reason. Opt-in: it costs two samples an exit (kvm_exit, kvm_entry), written
// by the kernel into one ring buffer per vCPU thread (perf_event_open(2), "MMAP layout").
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "stats/exit_reasons.hpp"
#include "stats/histogram.hpp"
#include "stats/tracepoints.hpp"
#include "stats/vcpu_snapshot.hpp"

namespace vmm::stats {

struct ExitTime {
  std::uint64_t count = 0;
  std::uint64_t ns = 0;
  Histogram histogram;  // log2, ns, 40 buckets (up to 9 minutes)
};

// Pairs exits with entries; pure.
class ExitTimeAccumulator {
 public:
  ExitTimeAccumulator();
  void on_exit(std::uint64_t time_ns, ExitClass exit_class);
  void on_entry(std::uint64_t time_ns);
  void on_lost(std::uint64_t records) { lost_ += records; }

  const ExitTime& of(ExitClass exit_class) const { return times_[static_cast<std::size_t>(exit_class)]; }
  std::uint64_t lost() const noexcept { return lost_; }

 private:
  struct Open {
    std::uint64_t time_ns;
    ExitClass exit_class;
  };
  std::array<ExitTime, kExitClasses> times_;
  std::optional<Open> open_;
  std::uint64_t lost_ = 0;
};

// Which events a raw record can be, and where their fields are.
struct ExitRecordFormat {
  std::uint64_t exit_id = 0;
  std::uint64_t entry_id = 0;
  TraceField common_type;
  TraceField exit_reason;
  TraceField isa;
  TraceField info1;
};
// Nothing when the format files lack a field.
std::optional<ExitRecordFormat> exit_record_format(const TraceEvent& exit, const TraceEvent& entry);

// Feeds perf records (PERF_SAMPLE_TIME | PERF_SAMPLE_RAW, each complete) into `into`; pure. Returns the bytes consumed:
// it stops before a record that does not fit, and treats a record of impossible size as the loss of all that follows.
std::size_t consume_exit_records(std::span<const std::byte> records, const ExitRecordFormat& format,
                                 ExitTimeAccumulator& into);

class ExitTimes {
 public:
  // Opens nothing yet; a reader thread drains the buffers from the first attach_thread() on.
  explicit ExitTimes(const Tracepoints& tracepoints, unsigned vcpus);
  ~ExitTimes();
  ExitTimes(ExitTimes&&) noexcept;
  ExitTimes& operator=(ExitTimes&&) noexcept;

  void attach_thread(unsigned vcpu, pid_t thread);
  // Drains, then adds exit_time_ns.<class>, exit_time_count.<class> and the histograms exit_time_ns.<class>. Null with
  // the reason when the samples cannot be had or some were lost.
  void read_into(VcpuSnapshot& into);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vmm::stats
