// SPDX-License-Identifier: Apache-2.0
#include "experiment/check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "base/error.hpp"
#include "result_documents.hpp"

namespace vmm::experiment {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Verdict = CheckFinding::Verdict;

// The document with one arm's counter multiplied.
Json scaled(Json document, const char* arm, const char* counter, double factor) {
  for (Json& trial : document["trials"]) {
    if (trial["arm"] != arm) continue;
    for (Json& vcpu : trial["vcpus"]) {
      Json& value = vcpu["counters"][counter]["value"];
      value = static_cast<std::uint64_t>(value.get<double>() * factor + 0.5);
    }
  }
  return document;
}

const CheckFinding& finding_of(const std::vector<CheckFinding>& findings, const std::string& arm, Metric metric) {
  return *std::ranges::find_if(findings,
                               [&](const CheckFinding& f) { return f.arm == arm && f.metric.metric == metric; });
}

TEST(Check, TheSameResultIsWithinEveryLimit) {
  const auto findings = check_results(result_document(), result_document(), {});
  EXPECT_TRUE(all_within_limits(findings));
  for (const CheckFinding& finding : findings) EXPECT_FALSE(finding.moved) << finding.arm << finding.metric.name;
  EXPECT_TRUE(std::ranges::none_of(findings, [](const CheckFinding& f) { return f.metric.metric == Metric::kSeconds; }))
      << "times only when asked for";
}

TEST(Check, TenPercentMoreExitsAreFoundInTheArmThatHasThem) {
  const auto findings = check_results(result_document(), scaled(result_document(), "none", "hlt_exits", 1.1), {});
  EXPECT_FALSE(all_within_limits(findings));
  EXPECT_EQ(finding_of(findings, "none", Metric::kHltExits).verdict, Verdict::kWorse);
  EXPECT_EQ(finding_of(findings, "spin", Metric::kHltExits).verdict, Verdict::kWithin);
  EXPECT_THAT(check_text(findings), AllOf(HasSubstr("WORSE   none, hlt_exits_per_op"), HasSubstr("+10.0 %"),
                                          HasSubstr("1 worse than allowed")));
}

TEST(Check, FewerExitsAndSmallMovesAreFine) {
  EXPECT_TRUE(
      all_within_limits(check_results(result_document(), scaled(result_document(), "none", "hlt_exits", 0.5), {})));
  const auto small = check_results(result_document(), scaled(result_document(), "none", "hlt_exits", 1.03), {});
  EXPECT_TRUE(finding_of(small, "none", Metric::kHltExits).moved);
  EXPECT_TRUE(all_within_limits(small)) << "moved, but within 5 %";
  EXPECT_FALSE(all_within_limits(check_results(result_document(), scaled(result_document(), "none", "hlt_exits", 1.03),
                                               {{Metric::kHltExits, 0.01}})));
}

TEST(Check, AHandfulOfEventsInThousandsIsNoRegression) {
  Json before = scaled(result_document(), "spin", "hlt_exits", 0);
  Json after = before;
  for (Json& trial : after["trials"]) {
    // One exit in a trial of 1,000 operations on every second trial.
    if (trial["arm"] == "spin" && trial["block"].get<int>() % 2 == 0)
      trial["vcpus"][0]["counters"]["hlt_exits"]["value"] = 1U;
  }
  EXPECT_TRUE(all_within_limits(check_results(before, after, {})));
}

TEST(Check, LessOfWhatIsGoodIsWorse) {
  Json before = result_document();
  for (Json& trial : before["trials"]) {
    if (trial["arm"] == "host") continue;
    for (Json& vcpu : trial["vcpus"]) vcpu["counters"]["guest_spin_hits_remote"] = counter_json(1000);
  }
  const std::vector<CheckLimit> limits{{Metric::kSpinHitsRemote, 0.05}};
  EXPECT_FALSE(all_within_limits(check_results(before, scaled(before, "spin", "guest_spin_hits_remote", 0.8), limits)));
  EXPECT_TRUE(all_within_limits(check_results(before, scaled(before, "spin", "guest_spin_hits_remote", 1.5), limits)));
}

TEST(Check, UnknownIsSkippedNotPassed) {
  Json after = result_document();
  after["trials"][1]["vcpus"][0]["counters"]["hlt_exits"]["value"] = nullptr;
  const auto findings = check_results(result_document(), after, {});
  EXPECT_EQ(finding_of(findings, "none", Metric::kHltExits).verdict, Verdict::kUnknown);
  EXPECT_THAT(junit_xml(findings), HasSubstr("<skipped message=\"the new result does not have it\"/>"));
  EXPECT_TRUE(all_within_limits(findings)) << "nobody asked for it by name";
}

TEST(Check, WhatWasAskedForAndIsUnknownIsNoPass) {
  const std::vector<CheckLimit> limits{{Metric::kHltExits, 0.05}, {Metric::kLatencyP999Us, 0.05}};
  const auto findings = check_results(result_document(), result_document(), limits);
  EXPECT_EQ(finding_of(findings, "none", Metric::kLatencyP999Us).verdict, Verdict::kUnknown);
  EXPECT_FALSE(all_within_limits(findings));
  EXPECT_THAT(junit_xml(findings), HasSubstr("<failure message=\"the baseline does not have it\"/>"));
}

TEST(Check, AnArmThatTheNewResultLeftOutIsNoPass) {
  Json after = result_document();
  after["arms"][2]["left_out"] = "no such exit here";
  std::erase_if(after["trials"].get_ref<Json::array_t&>(), [](const Json& trial) { return trial["arm"] == "spin"; });
  const auto findings = check_results(result_document(), after, {});
  EXPECT_FALSE(all_within_limits(findings));
  EXPECT_THAT(check_text(findings), HasSubstr("left it out: no such exit here"));
}

TEST(Check, AnArmWhoseTrialsAllBecameInvalidIsNoPass) {
  Json after = result_document();
  for (Json& trial : after["trials"]) {
    if (trial["arm"] == "spin") trial["valid"] = false;
  }
  EXPECT_FALSE(all_within_limits(check_results(result_document(), after, {})));
}

TEST(Check, Refusals) {
  const auto refuses = [](const Json& before, const Json& after, const char* what) {
    EXPECT_THAT([&] { (void)check_results(before, after, {}); }, ThrowsMessage<base::BadInput>(HasSubstr(what)));
  };
  Json other = result_document();
  other["config"]["workload"]["name"] = "idle";
  refuses(result_document(), other, "workload");
  Json fewer = result_document();
  fewer["arms"].erase(2);
  std::erase_if(fewer["trials"].get_ref<Json::array_t&>(), [](const Json& trial) { return trial["arm"] == "spin"; });
  refuses(result_document(), fewer, "no arm 'spin'");
  refuses(result_document(), Json::array(), "the new result: not a result");
  refuses(Json::array(), result_document(), "the baseline: not a result");
  refuses(result_document(2), result_document(2), "too few");
}

TEST(Check, JunitIsXmlWhateverTheNames) {
  Json document = result_document();
  const std::string name = "a<b>&\"c";
  document["arms"][2]["name"] = name;
  for (Json& trial : document["trials"]) {
    if (trial["arm"] == "spin") trial["arm"] = name;
  }
  const std::string xml = junit_xml(check_results(document, scaled(document, "none", "hlt_exits", 2), {}));
  EXPECT_THAT(xml,
              AllOf(HasSubstr("a&lt;b&gt;&amp;&quot;c"), HasSubstr("<failure message="), HasSubstr("failures=\"1\"")));
}

}  // namespace
}  // namespace vmm::experiment
