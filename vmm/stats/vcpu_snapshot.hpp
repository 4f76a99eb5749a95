// SPDX-License-Identifier: Apache-2.0
// Everything known of one vCPU at one instant, or (as a difference) over an interval. Names are docs/metrics.md's.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stats/histogram.hpp"
#include "stats/kvm_stats.hpp"
#include "stats/value.hpp"

namespace vmm::stats {

struct VcpuSnapshot {
  unsigned id = 0;
  std::map<std::string, Value, std::less<>> counters{};
  std::map<std::string, Histogram, std::less<>> histograms{};
  std::set<std::string, std::less<>>
      levels{};  // names in `counters` that are instants or peaks: they have no difference

  // The counter, or null "not measured".
  Value counter(std::string_view name) const;
  bool operator==(const VcpuSnapshot&) const = default;
};

// after - before, name by name; a name on one side only is null with that reason. `levels` are taken from `after`.
VcpuSnapshot difference(const VcpuSnapshot& before, const VcpuSnapshot& after);
// By position; both must be of the same vCPUs. Throws std::invalid_argument otherwise.
std::vector<VcpuSnapshot> difference(std::span<const VcpuSnapshot> before, std::span<const VcpuSnapshot> after);

// Sum over vCPUs of one counter: null as soon as one is null.
Value sum_over_vcpus(std::span<const VcpuSnapshot> vcpus, std::string_view counter);

// Adds hlt_exits, exits, irq_injections, halt_polls_attempted, halt_polls_successful, halt_polls_invalid,
// halt_poll_won_ns, halt_poll_lost_ns, halt_wait_ns, halt_wakeups, their histograms, and `kvm.<name>` for every other
// statistic of this kernel.
void merge_kvm_stats(VcpuSnapshot& into, const KvmStatsSnapshot& stats);

// A tracepoint that KVM's vendor module does not raise counts 0, which is no number but the lack of one. Where a
// statistic of KVM proves that the thing happened and the tracepoint never fired, its counters become null with the
// reason: kvm_exit (against exits and hlt_exits) and kvm_inj_virq (against irq_injections). For a snapshot counted
// since the vCPU's start, not for a difference. merge_kvm_stats() and VcpuTraceCounters::read_into() call it, whichever
// comes last matters.
void null_silent_tracepoints(VcpuSnapshot& snapshot);

// Who speaks in a mark: the Linux agent or a bare-metal payload.
enum class MarkSpeaker { kAgent, kPayload };

// Adds the guest's own counters from a mark's "guest" object, guest_* by names in docs/metrics.md. `guest` is hostile:
// whatever it holds, every expected counter of every vCPU is set, null with "guest did not report" or "guest reported
// nonsense: …" where it makes no sense. Never throws.
void merge_guest_mark(std::span<VcpuSnapshot> into, const nlohmann::json& guest, MarkSpeaker speaker);

// Two sources of the same thing.
struct Agreement {
  unsigned vcpu = 0;
  std::string name_a;
  std::string name_b;
  Value a;
  Value b;
  enum class Verdict { kAgree, kDisagree, kUnknown } verdict = Verdict::kUnknown;  // kUnknown: a side is null
};

// The pairs that must be equal in `interval`, a difference: hlt_exits and exits_by_reason.hlt, exits and the total of
// kvm_exit, irq_injections and kvm_inj_virq, accepted IPIs (less coalesced ones) by vector and the guest's own.
std::vector<Agreement> compare_sources(const VcpuSnapshot& interval);

nlohmann::ordered_json to_json(const VcpuSnapshot& snapshot);  // {"id", "counters", "histograms"}
nlohmann::ordered_json to_json(const Agreement& agreement);

}  // namespace vmm::stats
