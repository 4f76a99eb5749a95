// SPDX-License-Identifier: Apache-2.0
// The tracepoint counters of a VM's vCPUs: IPIs by target, sender and kind, injections, exits by reason.
//
// kvm_apic_accept_irq fires in the *sender's* thread with the target's id. So what a target accepts is counted by one
// event per target and vector whose filter names the target, opened with `inherit` before any vCPU thread exists: a few
// fds per vCPU. Everything that happens in the vCPU's own thread is counted by events on that thread.
#pragma once

#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "stats/perf_counter.hpp"
#include "stats/tracepoints.hpp"
#include "stats/vcpu_snapshot.hpp"

namespace vmm::stats {

// What to count: each group costs its events at every block and wake-up of a vCPU thread (the kernel switches them).
struct TraceGroups {
  bool ipi_targets = true;   // ipi_injected_*, timer_interrupts
  bool ipi_senders = true;   // ipi_sent_*, icr_writes_*, pv_ipi_hypercalls
  bool injections = true;    // virq_injections*, virq_reinjections*, ipi_reinjected_*, ipi_coalesced_*
  bool exit_reasons = true;  // exits_by_reason.*, exits_traced
  bool wakeups = true;       // halt_wakeups_traced, halts_blocked
};

// One event to open: pure data, so that tests see exactly what is asked of the kernel.
struct CounterSpec {
  std::string name;   // in the raw counter set; see vcpu_counters.cpp for how they become VcpuSnapshot names
  std::string event;  // of the system kvm
  std::string filter;
  bool inherit = false;  // opened before the threads exist, for a target
};
// For the target `vcpu` (KVM's vcpu_id, which is what kvm_apic_accept_irq calls apicid).
std::vector<CounterSpec> target_counter_specs(unsigned vcpu, const TraceGroups& groups);
// For the thread of a vCPU.
std::vector<CounterSpec> thread_counter_specs(const Tracepoints& tracepoints, const TraceGroups& groups);

// From the counters of target_counter_specs() and thread_counter_specs() those that are sums and remainders of them:
// ipi_injected, ipi_injected_call_function, ipi_sent, icr_writes_other, ipi_reinjected_*, ipi_coalesced_*,
// exits_by_reason.other. Pure.
void derive_trace_counters(VcpuSnapshot& into);

class VcpuTraceCounters {
 public:
  // Call in the thread that will create the vCPU threads, before it does: the counters of targets are inherited from
  // it. Never throws; `tracepoints` need not be usable, then everything reads null with its reason.
  VcpuTraceCounters(const Tracepoints& tracepoints, unsigned vcpus, const TraceGroups& groups = {});

  // Call once the thread of `vcpu` exists and before its first KVM_RUN. `thread` is its tid (gettid(2)).
  void attach_thread(unsigned vcpu, pid_t thread);

  // Adds this source's counters to the vCPU's snapshot. For exact numbers stop all vCPUs first.
  void read_into(VcpuSnapshot& into) const;

  // How many file descriptors are open (docs/metrics.md: at most kMaxFdsPerVcpu a vCPU).
  std::size_t open_fds() const noexcept;
  static constexpr std::size_t kMaxFdsPerVcpu = 40;

 private:
  struct Counter {
    std::string name;
    PerfCounter counter;
  };
  PerfCounter open(const CounterSpec& spec, pid_t thread) const;

  Tracepoints tracepoints_;
  TraceGroups groups_;
  std::vector<std::vector<Counter>> targets_;  // by vCPU
  std::vector<std::vector<Counter>> threads_;  // by vCPU
};

}  // namespace vmm::stats
