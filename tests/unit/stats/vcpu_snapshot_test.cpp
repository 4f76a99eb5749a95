// SPDX-License-Identifier: Apache-2.0
#include "stats/vcpu_snapshot.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "stats_file.hpp"

namespace vmm::stats {
namespace {

using nlohmann::json;

Value count(std::uint64_t number, Source source = Source::kKvmStats) {
  return Value::count(number, source);
}

TEST(VcpuSnapshot, AbsentCounterIsNull) {
  EXPECT_EQ(VcpuSnapshot{}.counter("x").reason(), "not measured");
}

TEST(VcpuSnapshot, DifferenceByName) {
  VcpuSnapshot before{.id = 1};
  VcpuSnapshot after{.id = 1};
  before.counters = {{"a", count(1)}, {"gone", count(1)}, {"level", count(9)}};
  after.counters = {{"a", count(5)}, {"new", count(1)}, {"level", count(3)}};
  after.levels = {"level"};
  const VcpuSnapshot interval = difference(before, after);
  EXPECT_EQ(interval.id, 1u);
  EXPECT_EQ(interval.counter("a"), count(4));
  EXPECT_EQ(interval.counter("new").reason(), "not measured at the beginning");
  EXPECT_EQ(interval.counter("gone").reason(), "not measured at the end");
  EXPECT_EQ(interval.counter("level"), count(3));
}

TEST(VcpuSnapshot, DifferenceOfHistograms) {
  VcpuSnapshot before;
  VcpuSnapshot after;
  Histogram histogram;
  histogram.counts = {1, 2};
  before.histograms = {{"h", histogram}, {"gone", histogram}};
  histogram.counts = {1, 5};
  after.histograms = {{"h", histogram}, {"new", histogram}};
  const VcpuSnapshot interval = difference(before, after);
  EXPECT_EQ(interval.histograms.at("h").counts, (std::vector<std::uint64_t>{0, 3}));
  EXPECT_FALSE(interval.histograms.at("new").known());
  EXPECT_FALSE(interval.histograms.at("gone").known());
}

TEST(VcpuSnapshot, DifferenceIsPure) {
  VcpuSnapshot before;
  before.counters = {{"a", count(1)}};
  VcpuSnapshot after;
  after.counters = {{"a", count(5)}};
  const VcpuSnapshot copy = after;
  EXPECT_EQ(difference(before, after), difference(before, after));
  EXPECT_EQ(after, copy);
  EXPECT_EQ(difference(after, after).counter("a"), count(0));
}

TEST(VcpuSnapshot, DifferenceOfOtherVcpusIsAnError) {
  const std::vector<VcpuSnapshot> two{{.id = 0}, {.id = 1}};
  const std::vector<VcpuSnapshot> swapped{{.id = 1}, {.id = 0}};
  const std::vector<VcpuSnapshot> one{{.id = 0}};
  EXPECT_THROW(difference(std::span(two), std::span(swapped)), std::invalid_argument);
  EXPECT_THROW(difference(std::span(two), std::span(one)), std::invalid_argument);
  EXPECT_EQ(difference(std::span(two), std::span(two)).size(), 2u);
}

TEST(VcpuSnapshot, SumIsNullAsSoonAsOneIs) {
  std::vector<VcpuSnapshot> vcpus{{.id = 0}, {.id = 1}};
  vcpus[0].counters["a"] = count(1);
  vcpus[1].counters["a"] = count(2);
  vcpus[0].counters["b"] = count(1);
  EXPECT_EQ(sum_over_vcpus(vcpus, "a"), count(3));
  EXPECT_FALSE(sum_over_vcpus(vcpus, "b").known());
  EXPECT_FALSE(sum_over_vcpus({}, "a").known());
}

TEST(VcpuSnapshot, KvmStatsAreRenamedAndTheRestCarriedAlong) {
  test::File file{
      .entries = {
          {.name = "halt_exits", .values = {1952}},
          {.name = "exits", .values = {4131}},
          {.name = "halt_attempted_poll", .values = {39}},
          {.name = "halt_poll_success_ns", .flags = test::kUnitSeconds, .exponent = -9, .values = {3164602}},
          {.name = "halt_wait_hist", .flags = test::kLog | test::kUnitSeconds, .exponent = -9, .values = {1, 2}},
          {.name = "guest_mode", .flags = test::kInstant | test::kUnitBoolean, .values = {1}},
          {.name = "brand_new_in_7_0", .values = {5}},
          {.name = "new_hist", .flags = test::kLog, .values = {5, 6}}}};
  VcpuSnapshot snapshot;
  merge_kvm_stats(snapshot, test::read_file(file));
  EXPECT_EQ(snapshot.counter("hlt_exits"), count(1952));
  EXPECT_EQ(snapshot.counter("exits"), count(4131));
  EXPECT_EQ(snapshot.counter("halt_polls_attempted"), count(39));
  EXPECT_EQ(snapshot.counter("halt_poll_won_ns").unit(), Unit::kNanoseconds);
  EXPECT_EQ(snapshot.histograms.at("halt_wait_ns").counts, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(snapshot.counter("kvm.brand_new_in_7_0"), count(5));
  EXPECT_EQ(snapshot.histograms.at("kvm.new_hist").counts.size(), 2u);
  EXPECT_TRUE(snapshot.levels.contains("kvm.guest_mode"));
  // Not under two names.
  EXPECT_FALSE(snapshot.counters.contains("kvm.halt_exits"));
  // What this kernel lacks is there, null, with its name in the reason.
  EXPECT_NE(snapshot.counter("irq_injections").reason().find("irq_injections"), std::string::npos);
  EXPECT_FALSE(snapshot.histograms.at("halt_poll_won_ns").known());
}

TEST(VcpuSnapshot, UnusableKvmStatsSetEveryNameToNull) {
  VcpuSnapshot snapshot;
  merge_kvm_stats(snapshot, KvmStatsReader::unavailable("no binary statistics").read());
  for (const char* name : {"hlt_exits", "exits", "irq_injections", "halt_polls_attempted", "halt_polls_successful",
                           "halt_poll_won_ns", "halt_poll_lost_ns", "halt_wait_ns"}) {
    EXPECT_EQ(snapshot.counter(name).reason(), "no binary statistics") << name;
  }
}

// kvm_pvm, for one, raises neither kvm_exit nor kvm_inj_virq: their 0 is no number.
TEST(SilentTracepoints, AreNullNotZero) {
  VcpuSnapshot snapshot;
  const auto traced = [&](const char* name, std::uint64_t number) {
    snapshot.counters[name] = count(number, Source::kTracepoint);
  };
  snapshot.counters["exits"] = count(10793);
  snapshot.counters["hlt_exits"] = count(7067);
  snapshot.counters["irq_injections"] = count(9987);
  for (const char* name : {"exits_traced", "exits_by_reason.hlt", "exits_by_reason.other", "virq_injections",
                           "virq_injections_reschedule", "ipi_reinjected_reschedule"}) {
    traced(name, 0);
  }
  traced("ipi_coalesced_reschedule", 9986);
  traced("ipi_injected_reschedule", 9986);
  null_silent_tracepoints(snapshot);
  EXPECT_EQ(snapshot.counter("exits_traced").reason(), "this host's KVM module does not raise kvm:kvm_exit");
  EXPECT_FALSE(snapshot.counter("exits_by_reason.hlt").known());
  EXPECT_FALSE(snapshot.counter("exits_by_reason.other").known());
  EXPECT_EQ(snapshot.counter("virq_injections").reason(), "this host's KVM module does not raise kvm:kvm_inj_virq");
  EXPECT_FALSE(snapshot.counter("ipi_coalesced_reschedule").known());
  EXPECT_FALSE(snapshot.counter("ipi_reinjected_reschedule").known());
  EXPECT_EQ(snapshot.counter("ipi_injected_reschedule"), count(9986, Source::kTracepoint));
  EXPECT_EQ(snapshot.counter("exits"), count(10793));
}

TEST(SilentTracepoints, AnHonestZeroStays) {
  VcpuSnapshot snapshot;
  snapshot.counters["exits"] = count(5);
  snapshot.counters["hlt_exits"] = count(0);
  snapshot.counters["irq_injections"] = count(0);
  snapshot.counters["exits_traced"] = count(5, Source::kTracepoint);
  snapshot.counters["exits_by_reason.hlt"] = count(0, Source::kTracepoint);
  snapshot.counters["virq_injections"] = count(0, Source::kTracepoint);
  const VcpuSnapshot before = snapshot;
  null_silent_tracepoints(snapshot);
  EXPECT_EQ(snapshot, before);
}

TEST(SilentTracepoints, OneLostIsADisagreementNotSilence) {
  VcpuSnapshot snapshot;
  snapshot.counters["exits"] = count(1000);
  snapshot.counters["exits_traced"] = count(999, Source::kTracepoint);
  null_silent_tracepoints(snapshot);
  EXPECT_TRUE(snapshot.counter("exits_traced").known());
}

std::vector<VcpuSnapshot> merged(const json& guest, MarkSpeaker speaker = MarkSpeaker::kAgent, unsigned vcpus = 2) {
  std::vector<VcpuSnapshot> result(vcpus);
  for (unsigned id = 0; id < vcpus; ++id) result[id].id = id;
  merge_guest_mark(result, guest, speaker);
  return result;
}

TEST(GuestMark, AgentsCounters) {
  const auto vcpus = merged(json::parse(R"({"vcpus":[
      {"id":1,"ipi_call_function_single":4381,"ipi_call_function":3,"ipi_reschedule":12,"timer_interrupts":99,
       "spin_hits_remote":5,"spin_hits_local":6,"spin_misses":7,"spin_ns":123,"idle_gap_ns_log2":[0,1,2]},
      {"id":0,"ipi_call_function_single":0,"ipi_call_function":0,"ipi_reschedule":0,"timer_interrupts":0,
       "spin_hits_remote":null,"spin_hits_local":null,"spin_misses":null,"spin_ns":null,"idle_gap_ns_log2":null}]})"));
  EXPECT_EQ(vcpus[1].counter("guest_ipi_call_function"), count(4384, Source::kGuest));
  EXPECT_EQ(vcpus[1].counter("guest_ipi_call_function_single"), count(4381, Source::kGuest));
  EXPECT_EQ(vcpus[1].counter("guest_ipi_reschedule"), count(12, Source::kGuest));
  EXPECT_EQ(vcpus[1].counter("guest_spin_hits"), count(11, Source::kGuest));
  EXPECT_EQ(vcpus[1].counter("guest_spin_ns"), Value::number(std::uint64_t{123}, Unit::kNanoseconds, Source::kGuest));
  EXPECT_EQ(vcpus[1].histograms.at("guest_idle_gap_ns").counts, (std::vector<std::uint64_t>{0, 1, 2}));
  // vCPU 0: a stock kernel without the knob.
  EXPECT_EQ(vcpus[0].counter("guest_spin_hits").reason(), "guest did not report");
  EXPECT_EQ(vcpus[0].counter("guest_ipi_call_function"), count(0, Source::kGuest));
  EXPECT_EQ(vcpus[0].histograms.at("guest_idle_gap_ns").reason, "guest did not report");
}

TEST(GuestMark, CallFunctionVectorsCountedTogether) {
  const auto vcpus = merged(json::parse(R"({"vcpus":[{"id":0,"ipi_call_function_all":77,"ipi_reschedule":1}]})"));
  EXPECT_EQ(vcpus[0].counter("guest_ipi_call_function"), count(77, Source::kGuest));
  EXPECT_FALSE(vcpus[0].counter("guest_ipi_call_function_single").known());
}

TEST(GuestMark, PayloadsCounters) {
  const auto vcpus = merged(json::parse(R"({"vcpus":[{"id":0,"hlt":3,"hlt_spurious":1,"ipi_sent":4,"ipi_skipped":2,
      "ipi_received":5,"timer_interrupts":0,"spin_hits":6,"spin_hits_late":1,"spin_misses":8}]})"),
                            MarkSpeaker::kPayload);
  EXPECT_EQ(vcpus[0].counter("guest_hlt"), count(3, Source::kPayload));
  EXPECT_EQ(vcpus[0].counter("guest_ipi_sent"), count(4, Source::kPayload));
  EXPECT_EQ(vcpus[0].counter("guest_ipi_received"), count(5, Source::kPayload));
  EXPECT_EQ(vcpus[0].counter("guest_spin_hits"), count(7, Source::kPayload));
  EXPECT_EQ(vcpus[1].counter("guest_hlt").reason(), "guest did not report");
}

struct Hostile {
  const char* name;
  const char* text;
};
class GuestMarkHostile : public testing::TestWithParam<Hostile> {};

// Every expected name is set and null: nothing of a lie is a number.
TEST_P(GuestMarkHostile, IsNullWithAReason) {
  for (const MarkSpeaker speaker : {MarkSpeaker::kAgent, MarkSpeaker::kPayload}) {
    const auto vcpus = merged(json::parse(GetParam().text), speaker);
    const char* name = speaker == MarkSpeaker::kAgent ? "guest_ipi_reschedule" : "guest_hlt";
    ASSERT_TRUE(vcpus[0].counters.contains(name));
    for (const auto& [counter, value] : vcpus[0].counters) {
      EXPECT_FALSE(value.known()) << counter;
      EXPECT_TRUE(value.reason().starts_with("guest ")) << value.reason();
      EXPECT_LT(value.reason().size(), 200u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GuestMarkHostile,
    testing::Values(Hostile{"null", "null"}, Hostile{"number", "7"}, Hostile{"text", "\"x\""}, Hostile{"array", "[]"},
                    Hostile{"empty", "{}"}, Hostile{"vcpus_object", R"({"vcpus":{}})"},
                    Hostile{"vcpus_of_numbers", R"({"vcpus":[1,2,3]})"},
                    Hostile{"id_negative", R"({"vcpus":[{"id":-1,"hlt":1,"ipi_reschedule":1}]})"},
                    Hostile{"id_text", R"({"vcpus":[{"id":"0","hlt":1,"ipi_reschedule":1}]})"},
                    Hostile{"id_wraps", R"({"vcpus":[{"id":4294967296,"hlt":1,"ipi_reschedule":1}]})"},
                    Hostile{"twice", R"({"vcpus":[{"id":0,"hlt":1},{"id":0,"hlt":2}]})"},
                    Hostile{"negative", R"({"vcpus":[{"id":0,"hlt":-1,"ipi_reschedule":-5}]})"},
                    Hostile{"fraction", R"({"vcpus":[{"id":0,"hlt":1.5,"ipi_reschedule":1.5}]})"},
                    Hostile{"beyond_64_bits",
                            R"({"vcpus":[{"id":0,"hlt":1e300,"ipi_reschedule":99999999999999999999}]})"},
                    Hostile{"types", R"({"vcpus":[{"id":0,"hlt":"7","ipi_reschedule":[7],"spin_ns":true}]})"}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(GuestMark, HostileHistograms) {
  const auto reason = [](const char* text) {
    return merged(json::parse(text))[0].histograms.at("guest_idle_gap_ns").reason;
  };
  EXPECT_NE(reason(R"({"vcpus":[{"id":0,"idle_gap_ns_log2":"x"}]})"), "");
  EXPECT_NE(reason(R"({"vcpus":[{"id":0,"idle_gap_ns_log2":[]}]})"), "");
  EXPECT_NE(reason(R"({"vcpus":[{"id":0,"idle_gap_ns_log2":[1,-1]}]})"), "");
  json many = json::parse(R"({"vcpus":[{"id":0}]})");
  many["vcpus"][0]["idle_gap_ns_log2"] = std::vector<int>(65, 1);
  EXPECT_NE(reason(many.dump().c_str()), "");
}

TEST(GuestMark, NonsenseSparesTheOtherSources) {
  std::vector<VcpuSnapshot> vcpus(1);
  vcpus[0].counters["hlt_exits"] = count(7);
  merge_guest_mark(vcpus, json::parse(R"({"vcpus":5})"), MarkSpeaker::kAgent);
  EXPECT_EQ(vcpus[0].counter("hlt_exits"), count(7));
  EXPECT_EQ(vcpus[0].counter("guest_ipi_reschedule").reason(), "guest reported nonsense: vcpus is a JSON number");
}

Agreement::Verdict verdict(const std::vector<Agreement>& agreements, const std::string& name_b) {
  for (const Agreement& agreement : agreements) {
    if (agreement.name_b == name_b) return agreement.verdict;
  }
  ADD_FAILURE() << "no pair with " << name_b;
  return Agreement::Verdict::kUnknown;
}

VcpuSnapshot agreeing() {
  VcpuSnapshot interval{.id = 1};
  const auto set = [&](const char* name, std::uint64_t number, Source source) {
    interval.counters[name] = count(number, source);
  };
  set("hlt_exits", 14218, Source::kKvmStats);
  set("exits_by_reason.hlt", 14218, Source::kTracepoint);
  set("exits", 30000, Source::kKvmStats);
  set("exits_traced", 30000, Source::kTracepoint);
  set("irq_injections", 27029, Source::kKvmStats);
  set("virq_injections", 27029, Source::kTracepoint);
  set("ipi_injected_reschedule", 25, Source::kTracepoint);
  set("ipi_injected_call_function", 8780, Source::kTracepoint);
  set("ipi_injected_call_function_single", 8700, Source::kTracepoint);
  set("ipi_injected_call_function_many", 80, Source::kTracepoint);
  set("ipi_coalesced_reschedule", 0, Source::kTracepoint);
  set("ipi_coalesced_call_function", 0, Source::kTracepoint);
  set("guest_ipi_reschedule", 25, Source::kGuest);
  set("guest_ipi_call_function", 8780, Source::kGuest);
  set("guest_ipi_call_function_single", 8700, Source::kGuest);
  set("guest_ipi_call_function_many", 80, Source::kGuest);
  return interval;
}

TEST(CompareSources, AllAgree) {
  const auto agreements = compare_sources(agreeing());
  EXPECT_EQ(agreements.size(), 7u);
  for (const Agreement& agreement : agreements) {
    EXPECT_EQ(agreement.verdict, Agreement::Verdict::kAgree) << agreement.name_a << " " << agreement.name_b;
    EXPECT_EQ(agreement.vcpu, 1u);
  }
}

TEST(CompareSources, OneInAThousandIsSeen) {
  for (const char* name :
       {"exits_by_reason.hlt", "exits_traced", "virq_injections", "guest_ipi_reschedule", "guest_ipi_call_function"}) {
    VcpuSnapshot interval = agreeing();
    interval.counters[name] = count(*interval.counter(name).integer() - 1, Source::kTracepoint);
    EXPECT_EQ(verdict(compare_sources(interval), name), Agreement::Verdict::kDisagree) << name;
  }
}

TEST(CompareSources, CoalescedOnesAreNotTheGuests) {
  VcpuSnapshot interval = agreeing();
  interval.counters["ipi_coalesced_call_function"] = count(3, Source::kTracepoint);
  EXPECT_EQ(verdict(compare_sources(interval), "guest_ipi_call_function"), Agreement::Verdict::kDisagree);
  interval.counters["guest_ipi_call_function"] = count(8777, Source::kGuest);
  EXPECT_EQ(verdict(compare_sources(interval), "guest_ipi_call_function"), Agreement::Verdict::kAgree);
}

TEST(CompareSources, NullIsNeitherAgreementNorDisagreement) {
  VcpuSnapshot interval = agreeing();
  interval.counters["exits_traced"] = Value::null(Unit::kCount, Source::kTracepoint, "no tracefs");
  EXPECT_EQ(verdict(compare_sources(interval), "exits_traced"), Agreement::Verdict::kUnknown);
}

TEST(CompareSources, PayloadsPairs) {
  VcpuSnapshot interval = agreeing();
  interval.counters.erase("guest_ipi_reschedule");
  interval.counters.erase("guest_ipi_call_function");
  interval.counters["guest_hlt"] = count(14218, Source::kPayload);
  interval.counters["guest_ipi_received"] = count(8805, Source::kPayload);
  interval.counters["icr_writes"] = count(4, Source::kTracepoint);
  interval.counters["guest_ipi_sent"] = count(4, Source::kPayload);
  const auto agreements = compare_sources(interval);
  EXPECT_EQ(verdict(agreements, "guest_hlt"), Agreement::Verdict::kAgree);
  EXPECT_EQ(verdict(agreements, "guest_ipi_received"), Agreement::Verdict::kAgree);
  EXPECT_EQ(verdict(agreements, "guest_ipi_sent"), Agreement::Verdict::kAgree);
  interval.counters["guest_ipi_received"] = count(8804, Source::kPayload);
  EXPECT_EQ(verdict(compare_sources(interval), "guest_ipi_received"), Agreement::Verdict::kDisagree);
}

TEST(CompareSources, Json) {
  const auto document = to_json(compare_sources(agreeing()).front());
  EXPECT_EQ(document["agree"], true);
  EXPECT_EQ(document["name_a"], "hlt_exits");
  EXPECT_EQ(document["a"]["value"], 14218);
}

}  // namespace
}  // namespace vmm::stats
