// SPDX-License-Identifier: Apache-2.0
// What is said of a result: analysis, tables, CSV, page.
#include "experiment/compare_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "experiment/html_report.hpp"
#include "experiment/markup.hpp"
#include "result_documents.hpp"

namespace vmm::experiment {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const ArmAnalysis& arm_of(const Analysis& analysis, const char* name) {
  return *std::ranges::find(analysis.arms, name, &ArmAnalysis::name);
}

double metric(const ArmAnalysis& arm, Metric which) {
  return arm.medians.at(static_cast<std::size_t>(which)).value();
}

TEST(Analysis, RatiosAndVerdictsByBlock) {
  const Analysis analysis = analyse(result_document());
  const ArmAnalysis& spin = arm_of(analysis, "spin");
  EXPECT_NEAR(spin.to_baseline->median, 0.8, 0.005);
  EXPECT_EQ(spin.verdict, stats::Verdict::kBetter);
  EXPECT_NEAR(spin.to_host->median, 1.6, 0.01);
  EXPECT_EQ(spin.shown, "spin: 5ms");
  EXPECT_EQ(arm_of(analysis, "none (again)").verdict, stats::Verdict::kEquivalent);
  EXPECT_FALSE(arm_of(analysis, "none").to_baseline) << "the baseline has no ratio to itself";
  EXPECT_EQ(analysis.blocks, 8U);
  EXPECT_TRUE(analysis.warnings.empty());
}

TEST(Analysis, CountersAddUpOverVcpusAndAreDividedByOperations) {
  const Analysis analysis = analyse(result_document());
  EXPECT_DOUBLE_EQ(metric(arm_of(analysis, "none"), Metric::kIpis), (40 + 1 + 80 + 1) / 1000.0);
  EXPECT_DOUBLE_EQ(metric(arm_of(analysis, "none (again)"), Metric::kHltExits), 3.0);
  EXPECT_DOUBLE_EQ(metric(arm_of(analysis, "none"), Metric::kCpuOnUs), 1000.0);
  EXPECT_DOUBLE_EQ(metric(arm_of(analysis, "none"), Metric::kLatencyP99Us), 20.0);
  EXPECT_FALSE(arm_of(analysis, "none").medians.at(static_cast<std::size_t>(Metric::kLatencyP999Us)))
      << "null in a trial";
  EXPECT_EQ(arm_of(analysis, "none (again)").vcpus.at(1).hlt_exits, 2000);
}

// A trial of 1,000 operations and 2 s: on each of two vCPUs 1 s on a CPU, of which 0.6 s guest and 0.1 s polling in
// vain, 0.1 s waiting, 0.88 s blocked.
Json trial_with_times() {
  Json document = result_document(1);
  Json trial = document["trials"][1];
  trial["wall_ns"] = 2'000'000'000U;
  for (Json& vcpu : trial["vcpus"]) {
    const auto set = [&](const char* name, std::uint64_t ns) { vcpu["counters"][name] = counter_json(ns); };
    set("cpu_on_ns", 1'000'000'000);
    set("cpu_guest_ns", 600'000'000);
    set("halt_poll_won_ns", 0);
    set("halt_poll_lost_ns", 100'000'000);
    set("run_delay_ns", 100'000'000);
    set("blocked_ns", 880'000'000);
  }
  return trial;
}

TEST(Analysis, TheTimeOfAnOperationIsSplitAndAccountedFor) {
  Json trial = trial_with_times();
  EXPECT_EQ(metric_of(trial, Metric::kGuestUs, false), 1200);
  EXPECT_EQ(metric_of(trial, Metric::kExitHandlingUs, false), 600);
  EXPECT_EQ(metric_of(trial, Metric::kBlockedUs, false), 1760);
  EXPECT_DOUBLE_EQ(metric_of(trial, Metric::kTimeAccounted, false).value(), 0.99);
  // The guest's ticks said more than there was: the rest is unknown, not negative.
  trial["vcpus"][0]["counters"]["cpu_guest_ns"] = counter_json(1'900'000'000);
  EXPECT_FALSE(metric_of(trial, Metric::kExitHandlingUs, false));
  trial["vcpus"][1]["counters"]["blocked_ns"] = counter_json(std::nullopt);
  EXPECT_FALSE(metric_of(trial, Metric::kTimeAccounted, false));
  EXPECT_FALSE(metric_of(trial, Metric::kBlockedUs, false));
}

TEST(Analysis, EnergyIsMillijoulesAnOperationOrUnknown) {
  Json trial = trial_with_times();
  EXPECT_FALSE(metric_of(trial, Metric::kEnergyMj, false));
  trial["energy"] = {{"value", 5'000'000U}, {"unit", "uJ"}, {"source", "powercap"}};
  EXPECT_DOUBLE_EQ(metric_of(trial, Metric::kEnergyMj, false).value(), 5.0);
  trial["energy"] = {{"value", nullptr}, {"unit", "uJ"}, {"source", "powercap"}, {"reason", "this host has no RAPL"}};
  EXPECT_FALSE(metric_of(trial, Metric::kEnergyMj, false));
}

TEST(Analysis, LatenciesOfAllTrialsTogetherGiveTheRarePercentile) {
  // Eight trials of 900 samples below 1.024 us and 100 below 2.048: one in a thousand of one trial has too few beyond.
  Json document = result_document();
  EXPECT_EQ(arm_of(analyse(document), "none").latency.samples, 8000U);
  EXPECT_EQ(arm_of(analyse(document), "none").latency.p50_us, 1.024);
  EXPECT_EQ(arm_of(analyse(document), "none").latency.p99_us, 2.048);
  EXPECT_FALSE(arm_of(analyse(document), "none").latency.p999_us) << "8 of 8,000 lie beyond";
  document = result_document(10);
  EXPECT_EQ(arm_of(analyse(document), "none").latency.p999_us, 2.048) << "10 of 10,000 do";
  EXPECT_FALSE(arm_of(analyse(document), "host").latency.p50_us);
}

TEST(Analysis, WhereTheTimeOfTheComparisonWent) {
  Json document = result_document();
  EXPECT_FALSE(analyse(document).time_spent);
  document["time_spent"] = {{"wall_s", 130.0}, {"workload_s", 100.0}, {"boots_s", 15.0}, {"crashes_s", 5.0}};
  EXPECT_DOUBLE_EQ(analyse(document).time_spent.value().overhead, 0.1);
  EXPECT_THAT(compare_table(document), HasSubstr("the rest 10.0 % of the workload"));
  document["time_spent"]["wall_s"] = 1e300;
  EXPECT_FALSE(analyse(document).time_spent);
}

TEST(Analysis, ANullControlThatDiffersIsSaidFirst) {
  Json document = result_document();
  for (Json& trial : document["trials"]) {
    if (trial["arm"] == "none (again)") trial["seconds"] = trial["seconds"].get<double>() * 1.1;
  }
  EXPECT_THAT(analyse(document).warnings, ::testing::ElementsAre(HasSubstr("null control differs")));
  EXPECT_TRUE(compare_table(document).starts_with("! the null control differs"));
}

TEST(Analysis, AnInvalidTrialIsShownAndNotCounted) {
  Json document = result_document();
  Json& trial = document["trials"][2];
  ASSERT_EQ(trial["arm"], "spin");
  trial["valid"] = false;
  trial["invalid_because"] = {"idle_spin: asked 5ms, seen 0"};
  trial["seconds"] = 1e6;
  const Analysis analysis = analyse(document);
  EXPECT_EQ(arm_of(analysis, "spin").valid, 7U);
  EXPECT_LT(metric(arm_of(analysis, "spin"), Metric::kSeconds), 12);
  EXPECT_EQ(arm_of(analysis, "spin").to_baseline->blocks, 7U);
  EXPECT_THAT(compare_table(document), HasSubstr("! 1 of 8 trials of 'spin' are invalid and not counted: idle_spin"));
}

TEST(Analysis, OneUnknownCounterMakesTheMedianUnknownNeverZero) {
  Json document = result_document();
  document["trials"][1]["vcpus"][0]["counters"]["hlt_exits"]["value"] = nullptr;
  const Analysis analysis = analyse(document);
  EXPECT_FALSE(arm_of(analysis, "none").medians.at(static_cast<std::size_t>(Metric::kHltExits)));
  EXPECT_FALSE(arm_of(analysis, "none").vcpus.at(0).hlt_exits);
  EXPECT_TRUE(arm_of(analysis, "none").vcpus.at(1).hlt_exits);
}

TEST(Analysis, AnUnknownIpiCountFallsBackToTheGuestsOwnForAllAndSaysSo) {
  Json document = result_document();
  document["trials"][1]["vcpus"][0]["counters"]["ipi_injected_call_function"]["value"] = nullptr;
  EXPECT_TRUE(analyse(document).ipis_by_guest);
  EXPECT_DOUBLE_EQ(metric(arm_of(analyse(document), "spin"), Metric::kIpis), 2 * 77 / 1000.0);
  EXPECT_THAT(compare_table(document), AllOf(HasSubstr("IPI 0g"), HasSubstr("/proc/interrupts")));
  EXPECT_THAT(compare_table(result_document()), Not(HasSubstr("IPI 0g")));
}

TEST(Analysis, FewBlocksHaveNoVerdict) {
  const Analysis analysis = analyse(result_document(5));
  EXPECT_FALSE(arm_of(analysis, "spin").to_baseline->interval);
  EXPECT_EQ(arm_of(analysis, "spin").verdict, stats::Verdict::kInconclusive);
  EXPECT_THAT(compare_table(result_document(5)), AllOf(HasSubstr("min..max"), HasSubstr("no verdict")));
}

TEST(Analysis, PartialAndLeftOutAreSaid) {
  Json document = result_document();
  document["partial"] = true;
  document["guest_restarts"] = {"triple fault"};
  document["arms"].push_back({{"name", "mwait"}, {"host", false}, {"left_out", "no MWAIT here"}});
  EXPECT_THAT(compare_table(document), AllOf(HasSubstr("! partial"), HasSubstr("! without 'mwait': no MWAIT here"),
                                             HasSubstr("guests crashed: 1;"), HasSubstr("over 8 blocks")));
}

TEST(Analysis, RefusesWhatIsNoResult) {
  const auto refused = [](const auto& damage) {
    Json document = result_document();
    damage(document);
    EXPECT_THROW((void)compare_table(document), base::BadInput) << document.dump().substr(0, 200);
    EXPECT_THROW((void)compare_csv(document), base::BadInput);
  };
  refused([](Json& d) { d = Json::array(); });
  refused([](Json& d) { d = {{"schema", "vmm.run/1"}}; });
  refused([](Json& d) { d = {{"schema", kCompareSchema}}; });
  refused([](Json& d) { d["trials"] = 3; });
  refused([](Json& d) { d["arms"] = Json::array(); });
  refused([](Json& d) { d["arms"].push_back(d["arms"][0]); });
  refused([](Json& d) { d["trials"][0]["arm"] = "nobody"; });
  refused([](Json& d) { d["trials"][0]["seconds"] = "five"; });
  refused([](Json& d) { d["trials"][0]["vcpus"] = 3; });
  refused([](Json& d) { d["arms"][0]["name"] = 3; });
}

TEST(Analysis, ATrialWithoutTimeIsInvalidEvenIfItSaysOtherwise) {
  for (const Json& seconds : {Json(nullptr), Json(0), Json(-5)}) {
    Json document = result_document();
    document["trials"][1]["seconds"] = seconds;
    EXPECT_EQ(arm_of(analyse(document), "none").valid, 7U) << seconds;
  }
}

TEST(Table, TheSeedsShapeThenRatios) {
  const std::string table = compare_table(result_document());
  EXPECT_THAT(table, HasSubstr("of host   HLT 0   IPI 0   HLT 1   IPI 1\n"));
  EXPECT_THAT(table, HasSubstr("50.0%    1002      41    2003      81\n"));
  EXPECT_THAT(table, HasSubstr("against none"));
  EXPECT_THAT(table, HasSubstr("(baseline)"));
  EXPECT_THAT(table, HasSubstr("better"));
  for (std::size_t at = 0; at < table.size();) {
    const std::size_t end = table.find('\n', at);
    EXPECT_LE(end - at, 120U) << table.substr(at, end - at);
    at = end + 1;
  }
}

TEST(Table, AHostileNameCannotCommandTheTerminal) {
  Json document = result_document();
  const std::string name = "evil\x1b[2J";
  document["arms"][2]["name"] = name;
  for (Json& trial : document["trials"]) {
    if (trial["arm"] == "spin") trial["arm"] = name;
  }
  EXPECT_THAT(compare_table(document), AllOf(HasSubstr("evil?[2J"), Not(HasSubstr("\x1b"))));
}

TEST(Csv, ALineATrialWithEmptyCellsForUnknown) {
  Json document = result_document(1);
  document["trials"][1]["arm"] = "none";
  const std::string csv = compare_csv(document);
  EXPECT_TRUE(csv.starts_with("arm,block,position,valid,seconds,hlt_exits_per_op,"));
  EXPECT_THAT(csv, HasSubstr("\"host\",0,1,true,5,,"));
  EXPECT_THAT(csv, HasSubstr("\"none\",0,0,true,10,3,0.122,1000,,"));
  EXPECT_EQ(std::ranges::count(csv, '\n'), 5);
}

TEST(Page, HasPlotsWithTextAndNoScript) {
  const std::string page = html_report(result_document());
  EXPECT_THAT(page,
              AllOf(HasSubstr("<!DOCTYPE html>"), HasSubstr("role=\"img\" aria-label=\""), HasSubstr("</html>"),
                    Not(HasSubstr("<script")), Not(HasSubstr("http-equiv")), HasSubstr("prefers-color-scheme:dark")));
  std::size_t plots = 0;
  for (std::size_t at = 0; (at = page.find("<svg", at)) != std::string::npos; ++at) ++plots;
  EXPECT_EQ(plots, 5U);
  // Addresses only name namespaces; nothing is fetched.
  EXPECT_THAT(page, AllOf(Not(HasSubstr("src=")), Not(HasSubstr("@import")), Not(HasSubstr("<link"))));
}

TEST(Page, IsWrittenWhereNoCountIsKnown) {
  Json document = result_document();
  for (Json& trial : document["trials"]) {
    for (Json& vcpu : trial["vcpus"]) vcpu["counters"] = Json::object();
  }
  const std::string page = html_report(document);
  std::size_t plots = 0;
  for (std::size_t at = 0; (at = page.find("<svg", at)) != std::string::npos; ++at) ++plots;
  EXPECT_EQ(plots, 3U) << "neither exits nor CPU time";
}

TEST(Analysis, ATimeThatNoTrialTakesIsRefused) {
  for (const double seconds : {1e308, 5e-324}) {
    Json document = result_document();
    document["trials"][1]["seconds"] = seconds;
    EXPECT_THROW((void)analyse(document), base::BadInput) << seconds;
  }
}

TEST(Page, AHostileNameReachesNeitherGnuplotNorThePage) {
  EXPECT_EQ(plot_label("`touch x`'\"$(x)\n\\a"),
            "?touch x???"
            "?(x)?"
            "?a");
  Json document = result_document();
  const std::string name = "'\n`touch /tmp/evil`\"<script>alert(1)</script>";
  document["arms"][2]["name"] = name;
  for (Json& trial : document["trials"]) {
    if (trial["arm"] == "spin") trial["arm"] = name;
  }
  document["host"]["cpu"] = "<img src=x onerror=alert(1)>";
  EXPECT_THAT(html_report(document), AllOf(Not(HasSubstr("<script")), Not(HasSubstr("<img"))));
}

TEST(Markup, EscapesAndReplaces) {
  EXPECT_EQ(escape_markup("a<b>&\"'\n"), "a&lt;b&gt;&amp;&quot;&#39;?");
  EXPECT_EQ(escape_markup("\xff"
                          "a"),
            "\xef\xbf\xbd"
            "a");
  EXPECT_EQ(escape_markup("µs \\ \x7f"), "µs \\ ?");
}

}  // namespace
}  // namespace vmm::experiment
