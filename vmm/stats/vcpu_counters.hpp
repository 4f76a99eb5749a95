// SPDX-License-Identifier: Apache-2.0
// The tracepoint counters of a VM's vCPUs: IPIs by target, sender and kind, injections, exits by reason.
//
// kvm_apic_accept_irq fires in the *sender's* thread with the target's id. So what a target accepts is counted by one
// event per target and vector whose filter names the target; everything else by events on the vCPU's own thread.
//
// Counting must not change what is counted. An event bound to a thread is taken off and put onto the CPU at every
// context switch of that thread, so it costs most where vCPUs halt most, and would make a guest that spins look better
// than it is. Where few CPUs and vCPUs permit, events are therefore bound to host CPUs, with the threads' ids in their
// filters, and cost nothing at a context switch. Elsewhere (many CPUs or vCPUs, a PID namespace, no permission for
// whole CPUs) they are bound to threads, those of targets inherited by the vCPU threads: a few fds per vCPU, never N
// squared.
#pragma once

#include <span>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "stats/perf_counter.hpp"
#include "stats/tracepoints.hpp"
#include "stats/vcpu_snapshot.hpp"

namespace vmm::stats {

// What to count.
struct TraceGroups {
  bool ipi_targets = true;   // ipi_injected_*, timer_interrupts
  bool ipi_senders = true;   // ipi_sent_*, icr_writes_*, pv_ipi_hypercalls
  bool injections = true;    // virq_injections*, virq_reinjections*, ipi_reinjected_*, ipi_coalesced_*
  bool hlt_exits = true;     // exits_by_reason.hlt
  bool exit_reasons = true;  // all exits_by_reason.*, exits_traced
  bool wakeups = true;       // halt_wakeups_traced, halts_blocked

  // What a comparison of times needs and no more: IPIs by target and kind, and HLT exits.
  static TraceGroups light() { return {true, false, false, true, false, false}; }
};

// What the events are bound to.
enum class TraceScope { kAutomatic, kThreads, kCpus };

// One event to open: pure data, so that tests see exactly what is asked of the kernel.
struct CounterSpec {
  std::string name;   // in VcpuSnapshot
  std::string event;  // of the system kvm
  std::string filter;
  bool inherit = false;  // of a target: in whichever vCPU's thread it fires
};
// For the target `vcpu` (KVM's vcpu_id, which is what kvm_apic_accept_irq calls apicid).
std::vector<CounterSpec> target_counter_specs(unsigned vcpu, const TraceGroups& groups);
// For the thread of a vCPU.
std::vector<CounterSpec> thread_counter_specs(const Tracepoints& tracepoints, const TraceGroups& groups);

// From the counters of target_counter_specs() and thread_counter_specs() those that are sums and remainders of them:
// ipi_injected, ipi_injected_call_function, ipi_sent, icr_writes_other, ipi_reinjected_*, ipi_coalesced_*,
// exits_by_reason.other. Pure.
void derive_trace_counters(VcpuSnapshot& into);

// The filter for events bound to CPUs: `filter` (may be empty) and the event is of one of `threads`.
std::string filter_with_threads(const std::string& filter, std::span<const pid_t> threads);

class VcpuTraceCounters {
 public:
  // Call in the thread that will create the vCPU threads, before it does: the counters of targets are inherited from
  // it. Never throws; `tracepoints` need not be usable, then everything reads null with its reason.
  VcpuTraceCounters(const Tracepoints& tracepoints, unsigned vcpus, const TraceGroups& groups = {},
                    TraceScope scope = TraceScope::kAutomatic);

  // Call for each vCPU once its thread exists, for all of them before the first KVM_RUN of any. `thread` is its tid
  // (gettid(2)).
  void attach_thread(unsigned vcpu, pid_t thread);

  // Adds this source's counters to the vCPU's snapshot. For exact numbers stop all vCPUs first.
  void read_into(VcpuSnapshot& into) const;

  // kThreads or kCpus.
  TraceScope scope() const noexcept { return scope_; }
  // How many file descriptors are open: at most kMaxFdsPerVcpu a vCPU, times the CPUs when bound to CPUs.
  std::size_t open_fds() const noexcept;
  static constexpr std::size_t kMaxFdsPerVcpu = 40;

 private:
  struct Counter {
    CounterSpec spec;
    std::vector<PerfCounter> parts;  // one, or one a CPU; their sum is the count
  };
  TraceScope choose(TraceScope wanted) const;
  std::vector<PerfCounter> open(const CounterSpec& spec, std::span<const pid_t> threads) const;

  Tracepoints tracepoints_;
  std::vector<unsigned> cpus_;  // online
  TraceScope scope_ = TraceScope::kThreads;
  std::vector<pid_t> tids_;                    // by vCPU; 0: not attached
  std::vector<std::vector<Counter>> targets_;  // by vCPU
  std::vector<std::vector<Counter>> threads_;  // by vCPU
};

}  // namespace vmm::stats
