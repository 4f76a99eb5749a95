// SPDX-License-Identifier: Apache-2.0
#include "stats/value.hpp"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

namespace vmm::stats {
namespace {

Value count(std::uint64_t number) {
  return Value::count(number, Source::kKvmStats);
}

TEST(Value, UnknownIsNeverANumber) {
  const Value unknown;
  EXPECT_FALSE(unknown.known());
  EXPECT_FALSE(unknown.integer());
  EXPECT_FALSE(unknown.real());
  EXPECT_EQ(unknown.reason(), "not measured");
  const Value null = Value::null(Unit::kCount, Source::kGuest, "");
  EXPECT_FALSE(null.known());
  EXPECT_FALSE(null.reason().empty());
}

TEST(Value, ZeroIsKnown) {
  EXPECT_TRUE(count(0).known());
  EXPECT_EQ(count(0).integer(), 0u);
  EXPECT_TRUE(count(0).reason().empty());
}

TEST(Value, DifferenceOfCounters) {
  EXPECT_EQ(difference(count(3), count(10)), count(7));
  EXPECT_EQ(difference(count(10), count(10)), count(0));
}

TEST(Value, DifferenceKeepsUnitAndSource) {
  const Value before = Value::number(std::uint64_t{1}, Unit::kNanoseconds, Source::kGuest);
  const Value after = Value::number(std::uint64_t{5}, Unit::kNanoseconds, Source::kGuest);
  EXPECT_EQ(difference(before, after), Value::number(std::uint64_t{4}, Unit::kNanoseconds, Source::kGuest));
}

TEST(Value, CounterThatDecreasedIsNull) {
  const Value result = difference(count(10), count(9));
  EXPECT_FALSE(result.known());
  EXPECT_EQ(result.reason(), "went backwards");
}

TEST(Value, DifferenceKeepsTheReasonOfEitherSide) {
  const Value null = Value::null(Unit::kCount, Source::kTracepoint, "no tracefs");
  EXPECT_EQ(difference(null, count(3)).reason(), "no tracefs");
  EXPECT_EQ(difference(count(3), null).reason(), "no tracefs");
  EXPECT_FALSE(difference(null, null).known());
}

TEST(Value, DifferenceOfUnitsIsNull) {
  const Value us = Value::number(std::uint64_t{5}, Unit::kMicroseconds, Source::kKvmStats);
  EXPECT_EQ(difference(count(1), us).reason(), "units differ");
  EXPECT_EQ(sum(count(1), us).reason(), "units differ");
}

TEST(Value, DifferenceIsExactBeyondADouble) {
  const std::uint64_t big = (std::uint64_t{1} << 60) + 1;
  EXPECT_EQ(difference(count(1), count(big)), count(big - 1));
}

TEST(Value, SumOverflowIsNull) {
  EXPECT_EQ(sum(count(std::numeric_limits<std::uint64_t>::max()), count(1)).reason(), "sum exceeds 64 bits");
  EXPECT_EQ(sum(count(2), count(3)), count(5));
  EXPECT_EQ(sum(count(2), Value::null(Unit::kCount, Source::kKvmStats, "gone")).reason(), "gone");
}

TEST(Value, RemainderBelowZeroIsNull) {
  EXPECT_EQ(remainder(count(10), count(4)), count(6));
  EXPECT_EQ(remainder(count(4), count(10)).reason(), "parts exceed the whole");
}

TEST(Value, NotFiniteIsNull) {
  EXPECT_FALSE(Value::number(std::nan(""), Unit::kSeconds, Source::kGuest).known());
  EXPECT_FALSE(Value::number(std::numeric_limits<double>::infinity(), Unit::kSeconds, Source::kGuest).known());
}

TEST(Value, Json) {
  EXPECT_EQ(to_json(count(7109)).dump(), R"({"value":7109,"unit":"count","source":"kvm-stats"})");
  EXPECT_EQ(to_json(Value::null(Unit::kCount, Source::kTracepoint, "no tracefs")).dump(),
            R"({"value":null,"unit":"count","source":"tracepoint","reason":"no tracefs"})");
  EXPECT_EQ(to_json(Value::number(1.5, Unit::kSeconds, Source::kGuest)).dump(),
            R"({"value":1.5,"unit":"s","source":"guest"})");
}

TEST(Value, NamesAreTheSchemas) {
  EXPECT_EQ(name_of(Unit::kNanoseconds), "ns");
  EXPECT_EQ(name_of(Unit::kMicroseconds), "us");
  EXPECT_EQ(name_of(Unit::kPercent), "percent");
  EXPECT_EQ(name_of(Source::kUserApic), "user-apic");
  EXPECT_EQ(name_of(Source::kPayload), "payload");
  EXPECT_EQ(name_of(Source::kRusage), "rusage");
}

}  // namespace
}  // namespace vmm::stats
