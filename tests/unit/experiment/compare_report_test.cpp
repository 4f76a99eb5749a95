// SPDX-License-Identifier: Apache-2.0
#include "experiment/compare_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "experiment/compare.hpp"

namespace vmm::experiment {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Json value(std::optional<std::uint64_t> number) {
  return {{"value", number ? Json(*number) : Json(nullptr)}, {"unit", "count"}, {"source", "tracepoint"}};
}

Json trial(const std::string& arm, double seconds, std::optional<std::uint64_t> hlt, std::optional<std::uint64_t> ipi) {
  Json json{{"arm", arm}, {"seconds", seconds}, {"vcpus", Json::array()}};
  if (arm == "host") return json;
  json["vcpus"].push_back({{"id", 0},
                           {"counters",
                            {{"hlt_exits", value(hlt)},
                             {"ipi_injected_call_function", value(ipi)},
                             {"ipi_injected_reschedule", value(ipi ? std::optional<std::uint64_t>(1) : std::nullopt)},
                             {"guest_ipi_call_function", value(77)},
                             {"guest_ipi_reschedule", value(0)}}}});
  return json;
}

Json document(std::optional<std::uint64_t> ipi = 40) {
  Json json{{"schema", kCompareSchema}, {"seed", 7}};
  json["config"]["workload"]["name"] = "tcp-pingpong";
  json["arms"] = {{{"name", "host"}}, {{"name", "guest, idle_spin=0us"}}};
  json["trials"] = {trial("host", 5, {}, {}),
                    trial("host", 4, {}, {}),
                    trial("host", 6, {}, {}),
                    trial("guest, idle_spin=0us", 10, 1000, 40),
                    trial("guest, idle_spin=0us", 8, 900, 50),
                    trial("guest, idle_spin=0us", 11, 1100, ipi)};
  return json;
}

TEST(CompareTable, ShowsMediansAndTheShareOfTheHostsSpeed) {
  const std::string table = compare_table(document());
  EXPECT_THAT(table, HasSubstr("of host"));
  EXPECT_THAT(table, HasSubstr("host                            5.000     4.00..6.00   100.0%"));
  EXPECT_THAT(table, HasSubstr("guest, idle_spin=0us           10.000    8.00..11.00    50.0%     1000      41"));
  EXPECT_THAT(table, HasSubstr("seed 7"));
}

TEST(CompareTable, AnUnknownIpiCountFallsBackToTheGuestsOwnAndSaysSo) {
  const std::string table = compare_table(document(std::nullopt));
  EXPECT_THAT(table, AllOf(HasSubstr("IPI 0g"), HasSubstr("      77\n"), HasSubstr("/proc/interrupts")));
  EXPECT_THAT(compare_table(document()), Not(HasSubstr("IPI 0g")));
}

TEST(CompareTable, UnknownIsADashNeverZero) {
  Json json = document();
  for (Json& t : json["trials"]) {
    if (!t["vcpus"].empty()) t["vcpus"][0]["counters"]["hlt_exits"]["value"] = nullptr;
  }
  EXPECT_THAT(compare_table(json), HasSubstr("50.0%        -      41"));
}

TEST(CompareTable, RefusesWhatIsNoResult) {
  EXPECT_THROW((void)compare_table(Json::array()), base::BadInput);
  EXPECT_THROW((void)compare_table(Json{{"schema", "vmm.run/1"}}), base::BadInput);
  EXPECT_THROW((void)compare_table(Json{{"schema", kCompareSchema}}), base::BadInput);
  Json no_trials = document();
  no_trials["trials"] = Json::array();
  EXPECT_THROW((void)compare_table(no_trials), base::BadInput);
  Json text = document();
  text["trials"][0]["seconds"] = "five";
  EXPECT_THROW((void)compare_table(text), base::BadInput);
}

TEST(Median, OfEvenAndOddCounts) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median({7}), 7);
}

TEST(SpinArms, AreTheHostAndWhatWasAsked) {
  const auto arms = parse_spin_arms("0,50us,1ms,best");
  ASSERT_EQ(arms.size(), 5U);
  EXPECT_EQ(arms[0].kind, Arm::Kind::kHost);
  EXPECT_EQ(arms[2].spin_us, 50U);
  EXPECT_EQ(arms[3].spin_us, 1000U);
  EXPECT_EQ(arms[4].kind, Arm::Kind::kBest);
  for (const char* bad : {"", "0,0", "best,best", "50us,50", "1500ns", "2s", "x", "0,"}) {
    EXPECT_THROW((void)parse_spin_arms(bad), base::BadInput) << bad;
  }
}

}  // namespace
}  // namespace vmm::experiment
