// SPDX-License-Identifier: Apache-2.0
// What the bare-metal payloads write and read, on the host: JSON text, arguments, samples.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "runtime/arguments.hpp"
#include "runtime/samples.hpp"
#include "runtime/text.hpp"

namespace {

using payload::Arguments;
using payload::Samples;
using payload::Text;

TEST(BareText, NestedObjectsAndListsGetTheirCommas) {
  Text<512> text;
  text.open('{').field("type", "mark").field("trial", 0).key("guest").open('{').key("vcpus").open('[');
  for (std::uint64_t i = 0; i < 2; ++i) text.open('{').field("id", i).field("hlt", 10 * i).close('}');
  text.close(']').close('}').key("none").literal("null").key("s").seconds(1'000'000'007).close('}');
  EXPECT_EQ(
      text.view(),
      R"({"type":"mark","trial":0,"guest":{"vcpus":[{"id":0,"hlt":0},{"id":1,"hlt":10}]},"none":null,"s":1.000000007})");
  EXPECT_FALSE(text.full());
}

TEST(BareText, NumbersToTheirLimits) {
  Text<128> text;
  text.decimal(0).raw(' ').decimal(UINT64_MAX).raw(' ').hexadecimal(0).raw(' ').hexadecimal(0xFEE00ABC1234);
  EXPECT_EQ(text.view(), "0 18446744073709551615 0x0 0xfee00abc1234");
}

TEST(BareText, StringsAreValidJsonWhateverIsInThem) {
  Text<128> text;
  text.open('{').field("what", std::string_view("a\"b\\c\nd\x80", 8)).close('}');
  const auto json = nlohmann::json::parse(text.view());
  EXPECT_EQ(json["what"], "a\"b\\c?d?");
}

TEST(BareText, FullIsSaid) {
  Text<4> text;
  text.raw("abcd");
  EXPECT_FALSE(text.full());
  text.raw('e');
  EXPECT_TRUE(text.full());
  EXPECT_EQ(text.view(), "abcd");
  text.clear();
  EXPECT_FALSE(text.full());
  EXPECT_EQ(text.view(), "");
}

TEST(BareArguments, GivenAndDefaultValues) {
  Arguments arguments("  rounds=12 kind=call-function ");
  EXPECT_EQ(arguments.number("rounds", 5, 1, 100), 12U);
  EXPECT_EQ(arguments.number("spin_us", 7, 0, 100), 7U);
  EXPECT_EQ(arguments.choice("kind", {"reschedule", "call-function"}), 1U);
  EXPECT_EQ(arguments.error(), nullptr);
}

TEST(BareArguments, EmptyTextIsFine) {
  Arguments arguments("");
  EXPECT_EQ(arguments.number("rounds", 5, 1, 100), 5U);
  EXPECT_EQ(arguments.error(), nullptr);
}

struct BadArguments {
  const char* text;
  const char* word;  // that must be blamed
};
void PrintTo(const BadArguments& arguments, std::ostream* out) {
  *out << '"' << arguments.text << '"';
}
class BareArgumentsRefused : public testing::TestWithParam<BadArguments> {};
TEST_P(BareArgumentsRefused, NamesTheWord) {
  Arguments arguments(GetParam().text);
  EXPECT_EQ(arguments.number("rounds", 5, 1, 100), 5U);
  arguments.choice("kind", {"a", "b"});
  const payload::ArgumentError* error = arguments.error();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->word, GetParam().word);
  EXPECT_FALSE(error->what.empty());
}
INSTANTIATE_TEST_SUITE_P(All, BareArgumentsRefused,
                         testing::Values(BadArguments{"rounds=0", "rounds=0"}, BadArguments{"rounds=101", "rounds=101"},
                                         BadArguments{"rounds=", "rounds="}, BadArguments{"rounds=1x", "rounds=1x"},
                                         BadArguments{"rounds=-1", "rounds=-1"},
                                         BadArguments{"rounds=18446744073709551621", "rounds=18446744073709551621"},
                                         BadArguments{"round=1", "round=1"}, BadArguments{"rounds", "rounds"},
                                         BadArguments{"=1", "=1"}, BadArguments{"kind=c", "kind=c"}));

TEST(BareArguments, GivenTwiceIsAnError) {
  Arguments arguments("rounds=1 rounds=2");
  EXPECT_EQ(arguments.number("rounds", 5, 1, 100), 1U);
  ASSERT_NE(arguments.error(), nullptr);
  EXPECT_EQ(arguments.error()->word, "rounds=2");
}

TEST(BareArguments, TooManyAreRefusedNotForgotten) {
  std::string text;
  for (int i = 0; i < 17; ++i) text += "k" + std::to_string(i) + "=1 ";
  Arguments arguments(text);
  for (int i = 0; i < 17; ++i) arguments.number("k" + std::to_string(i), 0, 0, 9);
  ASSERT_NE(arguments.error(), nullptr);
  EXPECT_EQ(arguments.error()->word, "k16=1");
}

TEST(BareSamples, MinimumOfAllMedianOfEvenlySpacedOnes) {
  Samples<8> samples;
  samples.start(16);
  for (std::uint64_t i = 0; i < 16; ++i) samples.add(100 - i);
  EXPECT_EQ(samples.seen(), 16U);
  EXPECT_EQ(samples.minimum(), 85U);  // the last one, which is not kept
  // Kept: 100, 98, … 86; the lower middle one of the eight.
  EXPECT_EQ(samples.median(), 92U);
}

TEST(BareSamples, FewerThanCapacityAreAllKept) {
  Samples<64> samples;
  samples.start(5);
  for (const std::uint64_t value : {50, 10, 40, 20, 30}) samples.add(value);
  EXPECT_EQ(samples.minimum(), 10U);
  EXPECT_EQ(samples.median(), 30U);
  samples.start(3);
  EXPECT_EQ(samples.seen(), 0U);
  EXPECT_EQ(samples.median(), 0U);
}

}  // namespace
