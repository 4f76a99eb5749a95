// SPDX-License-Identifier: Apache-2.0
#include "base/parse.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace vmm::base {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The message of the BadInput that `action` throws; "" when it throws none.
template <typename Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const BadInput& error) {
    EXPECT_EQ(error.status(), ExitStatus::kBadInput);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "one line";
    return error.what();
  }
  return "";
}

TEST(ParseSize, TakesSuffixesAndLimits) {
  EXPECT_EQ(parse_size_bytes("--memory", "256M", {0, ~0ULL}), 256ULL << 20);
  EXPECT_EQ(parse_size_bytes("--memory", "4G", {0, ~0ULL}), 4ULL << 30);
  EXPECT_EQ(parse_size_bytes("--memory", "184K", {0, ~0ULL}), 184ULL << 10);
  EXPECT_EQ(parse_size_bytes("--memory", "12599", {0, ~0ULL}), 12599U);
}

TEST(ParseSize, NamesOptionValueAndLimits) {
  for (const char* bad : {"0", "184K", "12599K", "600G", "", "M", "256MB", "-1", "1.5G", "99999999999999999999",
                          "18446744073709551615K", " 256M"}) {
    EXPECT_THAT(
        refusal([&] { parse_size_bytes("--memory", bad, {64ULL << 20, 512ULL << 30}); }),
        AllOf(HasSubstr("--memory"), HasSubstr(std::string("'") + bad + "'"), HasSubstr("64M"), HasSubstr("512G")))
        << bad;
  }
}

TEST(ParseDuration, BareNumbersAreInTheOptionsOwnUnit) {
  EXPECT_EQ(parse_duration_ns("--guest-spin", "50", 1'000, {0, 1'000'000'000}), 50'000U);
  EXPECT_EQ(parse_duration_ns("--guest-spin", "50us", 1'000, {0, 1'000'000'000}), 50'000U);
  EXPECT_EQ(parse_duration_ns("--guest-spin", "1ms", 1'000, {0, 1'000'000'000}), 1'000'000U);
  EXPECT_EQ(parse_duration_ns("--host-halt-poll", "200", 1, {0, 1'000'000'000}), 200U);
  EXPECT_EQ(parse_duration_ns("--timeout", "1s", 1'000'000'000, {0, 5'000'000'000}), 1'000'000'000U);
}

TEST(ParseDuration, RefusesWhatIsOutOfRangeOrNoTime) {
  for (const char* bad : {"1000001", "2s", "1.5ms", "abc", "", "-5", "5 us", "5min", "18446744073709551615"}) {
    EXPECT_THAT(refusal([&] { parse_duration_ns("--guest-spin", bad, 1'000, {0, 1'000'000'000}); }),
                AllOf(HasSubstr("--guest-spin"), HasSubstr(bad), HasSubstr("1s")))
        << bad;
  }
}

TEST(ParseCpuList, ReadsTheKernelsNotation) {
  EXPECT_THAT(parse_cpu_list("--pin", "0,2-3", 8), ElementsAre(0U, 2U, 3U));
  EXPECT_THAT(parse_cpu_list("--pin", "3,1", 8), ElementsAre(3U, 1U));
}

TEST(ParseCpuList, RefusesDuplicatesAndWhatDoesNotExist) {
  for (const char* bad : {"", ",", "0,", "0,0", "1-0", "8", "0-8", "a", "0-", "0--1", "18446744073709551615"}) {
    EXPECT_THAT(refusal([&] { parse_cpu_list("--pin", bad, 8); }), HasSubstr("--pin")) << bad;
  }
}

TEST(ParseNamedParameters, SplitsNameAndPairs) {
  const NamedParameters parsed = parse_named_parameters("--workload", "tcp-pingpong:iterations=2000,port=0");
  EXPECT_EQ(parsed.name, "tcp-pingpong");
  EXPECT_THAT(parsed.parameters, ElementsAre(std::pair("iterations", "2000"), std::pair("port", "0")));
  EXPECT_TRUE(parse_named_parameters("--workload", "idle").parameters.empty());
}

TEST(ParseNamedParameters, RefusesWhatWouldBeAmbiguous) {
  for (const char* bad : {"", ":a=b", "x:", "x:a", "x:a=", "x:a=1,a=2", "x:a=1,", "x y", "x:a=\"", "../x", "x:a b=1"}) {
    EXPECT_THAT(refusal([&] { parse_named_parameters("--workload", bad); }), HasSubstr("--workload")) << bad;
  }
}

TEST(Format, IsTheShortestExactForm) {
  EXPECT_EQ(format_duration_ns(50'000), "50us");
  EXPECT_EQ(format_duration_ns(1'500), "1500ns");
  EXPECT_EQ(format_duration_ns(0), "0ns");
  EXPECT_EQ(format_size_bytes(256ULL << 20), "256M");
  EXPECT_EQ(format_size_bytes(1536), "1536");
}

}  // namespace
}  // namespace vmm::base
