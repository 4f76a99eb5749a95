// SPDX-License-Identifier: Apache-2.0
#include "stats/run_report.hpp"

#include <gtest/gtest.h>
#include <sstream>

#include "stats/exit_reasons.hpp"

namespace vmm::stats {
namespace {

VcpuSnapshot vcpu(unsigned id) {
  VcpuSnapshot snapshot{.id = id};
  const auto set = [&](const std::string& name, std::uint64_t number, Source source, Unit unit = Unit::kCount) {
    snapshot.counters[name] = Value::number(number, unit, source);
  };
  set("hlt_exits", 7000 + id, Source::kKvmStats);
  set("exits", 20000, Source::kKvmStats);
  set("exits_traced", 20000, Source::kTracepoint);
  set("ipi_injected_reschedule", 12, Source::kTracepoint);
  set("ipi_injected_call_function", 4381, Source::kTracepoint);
  set("ipi_injected_other", 0, Source::kTracepoint);
  set("ipi_injected", 4393, Source::kTracepoint);
  set("guest_ipi_reschedule", 12, Source::kGuest);
  set("guest_ipi_call_function", 4381, Source::kGuest);
  set("guest_spin_hits", 33, Source::kGuest);
  set("guest_spin_misses", 44, Source::kGuest);
  set("cpu_on_ns", 5'250'000'000, Source::kRusage, Unit::kNanoseconds);
  for (const ExitClass exit_class : kNamedExitClasses) {
    set("exits_by_reason." + std::string(name_of(exit_class)), 1000, Source::kTracepoint);
  }
  set("exits_by_reason.hlt", 7000 + id, Source::kTracepoint);
  set("exits_by_reason.other", 3000 - id, Source::kTracepoint);
  return snapshot;
}

RunResult run(unsigned vcpus = 2) {
  RunResult result;
  result.exit_reason = "guest powered off";
  result.config = {{"guest_spin_us", 50}};
  result.phases_ms = {{"kvm_ready", 1.5}, {"init", 700.0}};
  result.interval = "trial 0";
  for (unsigned id = 0; id < vcpus; ++id) result.vcpus.push_back(vcpu(id));
  result.workload = WorkloadResult{
      .name = "tcp-pingpong",
      .seconds = Value::number(10.54, Unit::kSeconds, Source::kGuest),
      .operations = Value::count(2000, Source::kGuest),
      .raw = {{"workload", "tcp-pingpong"}, {"seconds", 10.54}, {"status", 0}, {"latency_us", {{"p50", 5.0}}}}};
  for (const VcpuSnapshot& snapshot : result.vcpus) {
    for (Agreement& agreement : compare_sources(snapshot)) result.agreements.push_back(std::move(agreement));
  }
  return result;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string line_starting(const std::string& text, const std::string& start) {
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with(start)) return line;
  }
  return "no line starts with " + start;
}

void expect_fits(const std::string& text) {
  for (const std::string& line : lines_of(text)) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_TRUE(text.ends_with("\n"));
}

TEST(RunTable, HasEveryNumber) {
  const std::string text = run_table(run());
  expect_fits(text);
  EXPECT_EQ(line_starting(text, "status"),
            "status 0: guest powered off; tcp-pingpong: 10.54 s, 2000 operations; counted: trial 0");
  EXPECT_EQ(line_starting(text, "1 "),
            "1          7001        12      4381         0      4393        33        44     20000      5.25");
  EXPECT_EQ(line_starting(text, "sum"),
            "sum       14001        24      8762         0      8786        66        88     40000     10.50");
  EXPECT_NE(text.find("source kvm-stats: HLT exits, all exits"), std::string::npos);
  EXPECT_NE(text.find("source rusage: CPU s"), std::string::npos);
  EXPECT_EQ(line_starting(text, "other"), "other                     3000      2999      5999     15.00");
  EXPECT_EQ(line_starting(text, "8 of"), "8 of 8 pairs of sources agree");
}

TEST(RunTable, NullIsADashWithItsReasonNeverZero) {
  RunResult result = run();
  for (VcpuSnapshot& snapshot : result.vcpus) {
    snapshot.counters["hlt_exits"] = Value::null(Unit::kCount, Source::kKvmStats, "no binary statistics");
  }
  const std::string text = run_table(result);
  expect_fits(text);
  EXPECT_TRUE(line_starting(text, "0 ").starts_with("0          -[1]"));
  EXPECT_TRUE(line_starting(text, "sum").starts_with("sum        -[1]"));
  EXPECT_EQ(line_starting(text, "[1]"), "[1] no binary statistics");
}

TEST(RunTable, WithoutTracepointsTheGuestsCountStandsIn) {
  RunResult result = run();
  const std::string reason = "tracefs is not mounted: mount -t tracefs nodev /sys/kernel/tracing";
  for (VcpuSnapshot& snapshot : result.vcpus) {
    for (auto& [name, value] : snapshot.counters) {
      if (value.source() == Source::kTracepoint) value = Value::null(Unit::kCount, Source::kTracepoint, reason);
    }
  }
  const std::string text = run_table(result);
  expect_fits(text);
  EXPECT_NE(line_starting(text, "1 ").find("4381g"), std::string::npos);
  EXPECT_NE(line_starting(text, "sum").find("8762g"), std::string::npos);
  EXPECT_TRUE(line_starting(text, "g:").starts_with("g: the guest's own count"));
  EXPECT_NE(text.find("[1] " + reason), std::string::npos);
  EXPECT_NE(text.find("KVM's own counters"), std::string::npos);
}

// A payload knows how many IPIs it took, not their vectors: the count stands in the column of all, in no other.
TEST(RunTable, PayloadsCountIsOfAllKinds) {
  RunResult result = run(1);
  auto& counters = result.vcpus[0].counters;
  for (auto& [name, value] : counters) {
    if (value.source() == Source::kTracepoint) value = Value::null(Unit::kCount, Source::kTracepoint, "no tracefs");
  }
  counters.erase("guest_ipi_reschedule");
  counters.erase("guest_ipi_call_function");
  counters["guest_ipi_received"] = Value::count(9983, Source::kPayload);
  EXPECT_TRUE(
      line_starting(run_table(result), "0 ").starts_with("0          7000      -[1]      -[1]      -[1]     9983g"));
}

TEST(RunTable, ManyVcpusStillFit) {
  const std::string text = run_table(run(64));
  expect_fits(text);
  EXPECT_EQ(line_starting(text, "63 ").substr(0, 15), "63         7063");
}

TEST(RunTable, LongReasonsAreWrapped) {
  RunResult result = run();
  result.vcpus[0].counters["hlt_exits"] =
      Value::null(Unit::kCount, Source::kKvmStats, "because " + std::string(250, 'x') + " and so on and so on");
  result.notes = {
      "the guest turned host polling off: its haltpoll driver wrote MSR_KVM_POLL_CONTROL, so that no host "
      "poll is no failure"};
  expect_fits(run_table(result));
}

TEST(RunTable, DisagreementIsShown) {
  RunResult result = run();
  result.vcpus[0].counters["exits_traced"] = Value::count(19999, Source::kTracepoint);
  result.agreements = compare_sources(result.vcpus[0]);
  const std::string text = run_table(result);
  EXPECT_NE(text.find("3 of 4 pairs of sources agree"), std::string::npos) << text;
  EXPECT_NE(text.find("vCPU 0: exits is 20000, exits_traced is 19999"), std::string::npos);
}

TEST(RunTable, CrashBeforeAnyCounterStillTells) {
  RunResult result;
  result.exit_status = 4;
  result.exit_reason = "triple fault";
  EXPECT_EQ(run_table(result), "status 4: triple fault\n");
}

TEST(RunJson, Schema) {
  const auto json = to_json(run());
  EXPECT_EQ(json["schema"], "vmm.run/1");
  EXPECT_EQ(json["exit"]["status"], 0);
  EXPECT_EQ(json["exit"]["reason"], "guest powered off");
  EXPECT_EQ(json["config"]["guest_spin_us"], 50);
  EXPECT_TRUE(json["effective"].is_object());
  EXPECT_EQ(json["phases_ms"]["init"], 700.0);
  EXPECT_EQ(json["vcpus"][1]["id"], 1);
  EXPECT_EQ(json["vcpus"][1]["counters"]["hlt_exits"]["value"], 7001);
  EXPECT_EQ(json["vcpus"][1]["counters"]["hlt_exits"]["unit"], "count");
  EXPECT_EQ(json["vcpus"][1]["counters"]["hlt_exits"]["source"], "kvm-stats");
  EXPECT_EQ(json["workload"]["name"], "tcp-pingpong");
  EXPECT_EQ(json["workload"]["seconds"], 10.54);
  EXPECT_EQ(json["workload"]["operations"], 2000);
  EXPECT_EQ(json["workload"]["latency_us"]["p50"], 5.0);
  EXPECT_FALSE(json["workload"].contains("workload"));
  EXPECT_EQ(json["agreements"].size(), 8u);
  EXPECT_EQ(json.begin().key(), "schema");
}

TEST(RunJson, NoWorkloadIsNull) {
  RunResult result = run();
  result.workload.reset();
  EXPECT_TRUE(to_json(result)["workload"].is_null());
}

TEST(RunJson, Trials) {
  RunResult result = run();
  result.trials.push_back({.trial = 7, .workload = *result.workload, .vcpus = result.vcpus, .begin_attempts = 3});
  const auto json = to_json(result);
  EXPECT_EQ(json["trials"][0]["trial"], 7);
  EXPECT_EQ(json["trials"][0]["begin_attempts"], 3);
  EXPECT_EQ(json["trials"][0]["vcpus"].size(), 2u);
}

TEST(ExitStatistics, SumEqualsExits) {
  const auto json = exit_statistics_json(run().vcpus);
  std::uint64_t sum = 0;
  double share = 0;
  for (const auto& reason : json[0]["reasons"]) {
    sum += reason["count"]["value"].get<std::uint64_t>();
    share += reason["share"]["value"].get<double>();
    EXPECT_TRUE(reason["time"]["value"].is_null());
    EXPECT_EQ(reason["time"]["unit"], "ns");
  }
  EXPECT_EQ(sum, 20000u);
  EXPECT_NEAR(share, 100, 1e-9);
  EXPECT_EQ(json[0]["sum"]["value"], 20000);
  EXPECT_EQ(json[0]["exits"]["value"], 20000);
  EXPECT_EQ(json[0]["complete"], true);
}

TEST(ExitStatistics, FallsBackToKvmsOwnCounters) {
  VcpuSnapshot snapshot = vcpu(0);
  snapshot.counters["exits_traced"] = Value::null(Unit::kCount, Source::kTracepoint, "no tracefs");
  snapshot.counters["kvm.io_exits"] = Value::count(5, Source::kKvmStats);
  const std::vector<VcpuSnapshot> vcpus{snapshot};
  const auto json = exit_statistics_json(vcpus);
  EXPECT_EQ(json[0]["source"], "kvm-stats");
  EXPECT_EQ(json[0]["complete"], false);
  EXPECT_EQ(json[0]["reasons"][0]["count"]["value"], 7000);
  EXPECT_EQ(json[0]["reasons"][1]["count"]["value"], 5);
  EXPECT_TRUE(json[0]["reasons"][2]["count"]["value"].is_null());
  const std::string text = exit_statistics_table(vcpus);
  expect_fits(text);
  EXPECT_NE(text.find("overlap"), std::string::npos);
}

TEST(ExitStatistics, TableShowsTimes) {
  VcpuSnapshot snapshot = vcpu(0);
  snapshot.counters["exit_time_ns.hlt"] =
      Value::number(std::uint64_t{2'190'250'000}, Unit::kNanoseconds, Source::kTracepoint);
  Histogram histogram;
  histogram.counts.assign(40, 0);
  histogram.counts[20] = 1000;
  histogram.source = Source::kTracepoint;
  snapshot.histograms["exit_time_ns.hlt"] = histogram;
  const std::vector<VcpuSnapshot> vcpus{snapshot};
  const std::string text = exit_statistics_table(vcpus);
  expect_fits(text);
  EXPECT_EQ(line_starting(text, "  hlt"),
            "  hlt                         7000         35.00       2190.25       1048.58");
}

}  // namespace
}  // namespace vmm::stats
