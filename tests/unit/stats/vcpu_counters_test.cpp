// SPDX-License-Identifier: Apache-2.0
#include "stats/vcpu_counters.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>
#include <unistd.h>

#include "trace_events.hpp"

namespace vmm::stats {
namespace {

std::string filter_of(const std::vector<CounterSpec>& specs, const std::string& name) {
  const auto found = std::ranges::find(specs, name, &CounterSpec::name);
  return found == specs.end() ? "absent" : found->filter;
}

Value count(std::uint64_t number) {
  return Value::count(number, Source::kTracepoint);
}

TEST(VcpuCounters, TargetsAreFilteredByTargetAndVector) {
  const auto specs = target_counter_specs(3, {});
  EXPECT_EQ(filter_of(specs, "ipi_injected_reschedule"), "apicid==3 && (dm<0x200 && (vec==0xfd))");
  EXPECT_EQ(filter_of(specs, "ipi_injected_call_function_many"), "apicid==3 && (dm<0x200 && (vec==0xfc))");
  EXPECT_EQ(filter_of(specs, "ipi_injected_call_function_single"), "apicid==3 && (dm<0x200 && (vec==0xfb))");
  EXPECT_EQ(
      filter_of(specs, "ipi_injected_other"),
      "apicid==3 && (dm==0x400 || dm==0x500 || dm==0x600 || (dm<0x200 && (vec==0xf8 || vec==0xf7 || vec==0xf6)))");
  EXPECT_EQ(filter_of(specs, "timer_interrupts"), "apicid==3 && (dm<0x200 && (vec==0xec))");
  for (const CounterSpec& spec : specs) {
    EXPECT_EQ(spec.event, "kvm_apic_accept_irq") << spec.name;
    EXPECT_TRUE(spec.inherit) << spec.name;  // the sender's thread, whichever it is
  }
}

TEST(VcpuCounters, TheTimerIsNoIpi) {
  for (const CounterSpec& spec : target_counter_specs(0, {})) {
    if (spec.name.starts_with("ipi_")) {
      EXPECT_EQ(spec.filter.find("0xec"), std::string::npos) << spec.name;
    }
  }
}

TEST(VcpuCounters, SendersAreTheirOwnThreads) {
  const auto specs = thread_counter_specs(test::tracepoints(), {});
  for (const CounterSpec& spec : specs) EXPECT_FALSE(spec.inherit) << spec.name;
  EXPECT_EQ(filter_of(specs, "ipi_sent_reschedule"), "dm<0x200 && (vec==0xfd)");
  EXPECT_EQ(filter_of(specs, "ipi_sent_call_function"), "dm<0x200 && (vec==0xfc || vec==0xfb)");
  EXPECT_EQ(filter_of(specs, "pv_ipi_hypercalls"), "nr==10");
  EXPECT_EQ(filter_of(specs, "icr_writes"), "");
}

// The ICR's vector by bits: 0xfd is 1111'1101.
TEST(VcpuCounters, IcrVectorIsTestedBitByBit) {
  const auto specs = thread_counter_specs(test::tracepoints(), {});
  EXPECT_EQ(filter_of(specs, "icr_writes_reschedule"),
            "!(icr_low&0x600) && icr_low&0x1 && !(icr_low&0x2) && icr_low&0x4 && icr_low&0x8 && icr_low&0x10 && "
            "icr_low&0x20 && icr_low&0x40 && icr_low&0x80");
}

TEST(VcpuCounters, InjectionsByTheFieldThatTheKernelHas) {
  EXPECT_EQ(filter_of(thread_counter_specs(test::tracepoints(), {}), "virq_injections_reschedule"), "vector==0xfd");
  EXPECT_EQ(filter_of(thread_counter_specs(test::tracepoints(), {}), "ipi_reinjected_call_function"),
            "(vector==0xfc || vector==0xfb) && reinjected==1");
  TraceEvent old{"kvm_inj_virq", 7, {{"irq", {8, 4, false}}}};
  const auto kernel_5_19 = Tracepoints::of({{"kvm_inj_virq", old}}, Isa::kSvm, ApicVirtualization::kNone);
  const auto specs = thread_counter_specs(kernel_5_19, {});
  EXPECT_EQ(filter_of(specs, "virq_injections_reschedule"), "irq==0xfd");
  EXPECT_EQ(filter_of(specs, "ipi_reinjected_call_function"), "absent");
}

TEST(VcpuCounters, ExitsByTheVendorsCodes) {
  EXPECT_EQ(filter_of(thread_counter_specs(test::tracepoints(Isa::kSvm), {}), "exits_by_reason.hlt"),
            "exit_reason==0x78");
  EXPECT_EQ(filter_of(thread_counter_specs(test::tracepoints(Isa::kVmx), {}), "exits_by_reason.hlt"),
            "exit_reason==0xc");
}

TEST(VcpuCounters, AFewFdsAVcpu) {
  const auto targets = target_counter_specs(0, {});
  const auto threads = thread_counter_specs(test::tracepoints(), {});
  EXPECT_LE(targets.size() + threads.size(), VcpuTraceCounters::kMaxFdsPerVcpu);
  std::set<std::string> names;
  for (const auto* specs : {&targets, &threads}) {
    for (const CounterSpec& spec : *specs) EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
  }
}

TEST(VcpuCounters, GroupsSwitchOff) {
  const TraceGroups none{false, false, false, false, false, false};
  EXPECT_TRUE(target_counter_specs(0, none).empty());
  EXPECT_TRUE(thread_counter_specs(test::tracepoints(), none).empty());
}

TEST(VcpuCounters, LightIsWhatAComparisonNeeds) {
  const auto threads = thread_counter_specs(test::tracepoints(), TraceGroups::light());
  ASSERT_EQ(threads.size(), 1u);
  EXPECT_EQ(threads[0].name, "exits_by_reason.hlt");
  EXPECT_EQ(target_counter_specs(0, TraceGroups::light()).size(), 5u);
}

TEST(VcpuCounters, BoundToCpusTheFilterNamesTheThreads) {
  const std::vector<pid_t> one{17};
  const std::vector<pid_t> two{17, 18};
  EXPECT_EQ(filter_with_threads("", one), "common_pid==17");
  EXPECT_EQ(filter_with_threads("exit_reason==0x78", one), "(exit_reason==0x78) && (common_pid==17)");
  EXPECT_EQ(filter_with_threads("a==1 || b==1", two), "(a==1 || b==1) && (common_pid==17 || common_pid==18)");
}

TEST(VcpuCounters, ManyVcpusAreBoundToThreads) {
  EXPECT_EQ(VcpuTraceCounters(test::tracepoints(), 64).scope(), TraceScope::kThreads);
  EXPECT_EQ(VcpuTraceCounters(Tracepoints::unavailable("no tracefs", ""), 1).scope(), TraceScope::kThreads);
}

TEST(VcpuCounters, UnusableTracepointsReadNullWithTheReason) {
  VcpuTraceCounters counters(Tracepoints::unavailable("tracefs is not mounted", "mount it"), 2);
  counters.attach_thread(1, ::gettid());
  VcpuSnapshot snapshot{.id = 1};
  counters.read_into(snapshot);
  EXPECT_EQ(counters.open_fds(), 0u);
  for (const char* name : {"ipi_injected", "ipi_injected_call_function", "ipi_injected_reschedule", "ipi_sent",
                           "icr_writes_other", "virq_injections", "ipi_coalesced_reschedule", "exits_by_reason.hlt",
                           "exits_by_reason.other", "halts_blocked", "timer_interrupts"}) {
    ASSERT_TRUE(snapshot.counters.contains(name)) << name;
    EXPECT_FALSE(snapshot.counter(name).known()) << name;
    EXPECT_EQ(snapshot.counter(name).reason(), "tracefs is not mounted: mount it") << name;
    EXPECT_EQ(snapshot.counter(name).source(), Source::kTracepoint) << name;
  }
}

TEST(VcpuCounters, IpiVirtualizationIsSaidNotZero) {
  VcpuTraceCounters counters(test::tracepoints(Isa::kSvm, ApicVirtualization::kIpiVirtualized), 1, {},
                             TraceScope::kThreads);
  VcpuSnapshot snapshot;
  counters.read_into(snapshot);
  EXPECT_NE(snapshot.counter("ipi_injected_reschedule").reason().find("only the guest knows"), std::string::npos);
  counters.attach_thread(0, ::gettid());
  counters.read_into(snapshot);
  EXPECT_NE(snapshot.counter("ipi_sent_reschedule").reason().find("only the guest knows"), std::string::npos);
  EXPECT_NE(snapshot.counter("virq_injections").reason().find("does not see them"), std::string::npos);
}

TEST(VcpuCounters, ThreadNotAttachedIsNull) {
  VcpuTraceCounters counters(test::tracepoints(), 1);
  VcpuSnapshot snapshot;
  counters.read_into(snapshot);
  EXPECT_EQ(snapshot.counter("exits_traced").reason(), "the vCPU's thread is not attached");
}

VcpuSnapshot raw() {
  VcpuSnapshot snapshot;
  const auto set = [&](const char* name, std::uint64_t number) { snapshot.counters[name] = count(number); };
  set("ipi_injected_reschedule", 25);
  set("ipi_injected_call_function_many", 80);
  set("ipi_injected_call_function_single", 8700);
  set("ipi_injected_other", 2);
  set("ipi_sent_reschedule", 1);
  set("ipi_sent_call_function", 2);
  set("ipi_sent_other", 3);
  set("icr_writes", 10);
  set("icr_writes_reschedule", 1);
  set("icr_writes_call_function", 2);
  set("virq_injections", 9000);
  set("virq_injections_reschedule", 24);
  set("virq_injections_call_function", 8800);
  set("ipi_reinjected_reschedule", 0);
  set("ipi_reinjected_call_function", 20);
  set("exits_traced", 1000);
  for (const ExitClass exit_class : kNamedExitClasses) {
    snapshot.counters["exits_by_reason." + std::string(name_of(exit_class))] = count(10);
  }
  return snapshot;
}

TEST(VcpuCounters, DerivedSumsAndRemainders) {
  VcpuSnapshot snapshot = raw();
  derive_trace_counters(snapshot);
  EXPECT_EQ(snapshot.counter("ipi_injected_call_function"), count(8780));
  EXPECT_EQ(snapshot.counter("ipi_injected"), count(8807));
  EXPECT_EQ(snapshot.counter("ipi_sent"), count(6));
  EXPECT_EQ(snapshot.counter("icr_writes_other"), count(7));
  // accepted 8,780 = injected 8,800 less 20 re-injections: none coalesced.
  EXPECT_EQ(snapshot.counter("ipi_coalesced_call_function"), count(0));
  EXPECT_EQ(snapshot.counter("ipi_coalesced_reschedule"), count(1));
  EXPECT_EQ(snapshot.counter("exits_by_reason.other"), count(1000 - 10 * (kExitClasses - 1)));
}

TEST(VcpuCounters, ReasonsThatExceedTheTotalAreNull) {
  VcpuSnapshot snapshot = raw();
  snapshot.counters["exits_traced"] = count(50);
  derive_trace_counters(snapshot);
  EXPECT_FALSE(snapshot.counter("exits_by_reason.other").known());
}

TEST(VcpuCounters, OneNullSpoilsOnlyWhatStandsOnIt) {
  VcpuSnapshot snapshot = raw();
  snapshot.counters["ipi_injected_call_function_many"] = Value::null(Unit::kCount, Source::kTracepoint, "no fd");
  derive_trace_counters(snapshot);
  EXPECT_EQ(snapshot.counter("ipi_injected_call_function").reason(), "no fd");
  EXPECT_EQ(snapshot.counter("ipi_injected").reason(), "no fd");
  EXPECT_EQ(snapshot.counter("ipi_injected_reschedule"), count(25));
  EXPECT_TRUE(snapshot.counter("exits_by_reason.other").known());
}

TEST(VcpuCounters, WithoutTheFieldReinjectionsAreTheExcess) {
  VcpuSnapshot snapshot = raw();
  snapshot.counters.erase("ipi_reinjected_call_function");
  derive_trace_counters(snapshot);
  EXPECT_EQ(snapshot.counter("ipi_reinjected_call_function"), count(20));
  EXPECT_FALSE(snapshot.counter("ipi_coalesced_call_function").known());
}

}  // namespace
}  // namespace vmm::stats
