// SPDX-License-Identifier: Apache-2.0
#include "stats/kvm_stats.hpp"

#include <cerrno>
#include <gtest/gtest.h>

#include "stats_file.hpp"

namespace vmm::stats {
namespace {

using test::Entry;
using test::File;

File sound() {
  return {
      .entries = {
          {.name = "exits", .values = {4691}},
          {.name = "halt_exits", .values = {1952}},
          {.name = "halt_wait_ns", .flags = test::kUnitSeconds, .exponent = -9, .values = {123456789}},
          {.name = "halt_wait_hist", .flags = test::kLog | test::kUnitSeconds, .exponent = -9, .values = {0, 1, 2, 3}},
          {.name = "buckets", .flags = test::kLinear, .values = {5, 6}, .bucket_size = 10},
          {.name = "guest_mode", .flags = test::kInstant | test::kUnitBoolean, .values = {1}},
          {.name = "peak_bytes", .flags = test::kPeak | test::kUnitBytes, .values = {77}}}};
}

TEST(KvmStats, ReadsEveryKind) {
  const auto snapshot = test::read_file(sound());
  EXPECT_TRUE(snapshot.problem.empty());
  EXPECT_EQ(snapshot.value("halt_exits"), Value::count(1952, Source::kKvmStats));
  EXPECT_EQ(snapshot.value("halt_wait_ns"),
            Value::number(std::uint64_t{123456789}, Unit::kNanoseconds, Source::kKvmStats));
  EXPECT_EQ(snapshot.value("guest_mode").unit(), Unit::kBoolean);
  EXPECT_EQ(snapshot.value("peak_bytes").unit(), Unit::kBytes);
  const Histogram log = snapshot.histogram("halt_wait_hist");
  EXPECT_EQ(log.counts, (std::vector<std::uint64_t>{0, 1, 2, 3}));
  EXPECT_EQ(log.unit, Unit::kNanoseconds);
  EXPECT_EQ(log.scale, Histogram::Scale::kLog2);
  const Histogram linear = snapshot.histogram("buckets");
  EXPECT_EQ(linear.scale, Histogram::Scale::kLinear);
  EXPECT_EQ(linear.bucket_size, 10u);
}

TEST(KvmStats, OrderAndPlaceDoNotMatter) {
  File reordered = sound();
  std::ranges::reverse(reordered.entries);
  reordered.data_first = true;
  reordered.name_size = 20;
  const auto a = test::read_file(sound());
  const auto b = test::read_file(reordered);
  ASSERT_EQ(a.readings.size(), b.readings.size());
  for (const auto& [name, reading] : a.readings) {
    EXPECT_EQ(reading.values, b.readings.at(name).values) << name;
  }
}

TEST(KvmStats, ShortReadsAreContinued) {
  const auto source = test::reader(sound().bytes(), 3);
  const auto snapshot = read_stats(parse_stats_layout(source), source);
  EXPECT_EQ(snapshot.value("exits").integer(), 4691u);
}

TEST(KvmStats, InterruptedReadsAreRetried) {
  const auto inner = test::reader(sound().bytes());
  int calls = 0;
  const ReadAt source = [&](std::uint64_t offset, std::span<std::byte> into) -> std::int64_t {
    return ++calls % 2 == 1 ? -EINTR : inner(offset, into);
  };
  EXPECT_EQ(read_stats(parse_stats_layout(source), source).value("exits").integer(), 4691u);
}

TEST(KvmStats, IdIsRead) {
  EXPECT_EQ(parse_stats_layout(test::reader(sound().bytes())).id, "kvm-7/vcpu-1");
  File lost = sound();
  lost.id_offset = 0xffffffff;
  const auto layout = parse_stats_layout(test::reader(lost.bytes()));
  EXPECT_TRUE(layout.id.empty());
  EXPECT_EQ(layout.descriptors.size(), sound().entries.size());
}

TEST(KvmStats, MissingNameIsNullAndNamed) {
  const auto snapshot = test::read_file(sound());
  const Value value = snapshot.value("no_such");
  EXPECT_FALSE(value.known());
  EXPECT_NE(value.reason().find("no_such"), std::string::npos);
  EXPECT_FALSE(snapshot.histogram("no_such").known());
}

TEST(KvmStats, WrongShapeIsNull) {
  const auto snapshot = test::read_file(sound());
  EXPECT_FALSE(snapshot.value("halt_wait_hist").known());
  EXPECT_FALSE(snapshot.histogram("exits").known());
}

// Each lie spoils its own entry and no other.
struct Lie {
  const char* name;
  Entry entry;
};
class KvmStatsLie : public testing::TestWithParam<Lie> {};

TEST_P(KvmStatsLie, SpoilsOnlyItself) {
  File file = sound();
  file.entries.push_back(GetParam().entry);
  const auto snapshot = test::read_file(file);
  EXPECT_TRUE(snapshot.problem.empty());
  EXPECT_EQ(snapshot.value("halt_exits").integer(), 1952u);
  const std::string name = GetParam().entry.name.empty() ? "?" : GetParam().entry.name;
  EXPECT_FALSE(snapshot.value(name).known());
  EXPECT_FALSE(snapshot.histogram(name).known());
  EXPECT_FALSE(snapshot.value(name).reason().empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, KvmStatsLie,
    testing::Values(Lie{"size_zero", {.name = "bad", .values = {1}, .size = 0}},
                    Lie{"size_huge", {.name = "bad", .flags = test::kLog, .values = {1}, .size = 0xffff}},
                    Lie{"two_values_in_a_counter", {.name = "bad", .values = {1, 2}}},
                    Lie{"offset_huge", {.name = "bad", .values = {1}, .offset = 0xfffffff8}},
                    Lie{"offset_past_the_end", {.name = "bad", .values = {1}, .offset = 100000}},
                    Lie{"unknown_kind", {.name = "bad", .flags = 0x00f, .values = {1}}},
                    Lie{"unknown_unit", {.name = "bad", .flags = 0x0f0, .values = {1}}},
                    Lie{"unknown_base", {.name = "bad", .flags = 0xf00, .values = {1}}},
                    Lie{"odd_exponent",
                        {.name = "bad", .flags = test::kUnitSeconds, .exponent = -32768, .values = {1}}},
                    Lie{"count_with_exponent", {.name = "bad", .exponent = 3, .values = {1}}},
                    Lie{"linear_without_bucket", {.name = "bad", .flags = test::kLinear, .values = {1}}},
                    Lie{"no_name", {.name = "", .values = {1}}}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(KvmStats, TwoOfOneNameAreBothDoubted) {
  File file = sound();
  file.entries.push_back({.name = "exits", .values = {1}});
  EXPECT_FALSE(test::read_file(file).value("exits").known());
}

TEST(KvmStats, NameWithoutNulEndsAtItsSize) {
  File file = sound();
  file.name_size = 5;
  file.entries = {{.name = "abcdefgh", .values = {9}}};
  const auto snapshot = test::read_file(file);
  EXPECT_EQ(snapshot.value("abcde").integer(), 9u);
}

TEST(KvmStats, NamesCannotDisturbATerminal) {
  File file = sound();
  file.entries = {{.name = "a\x1b[2Jb\xff", .values = {9}}};
  EXPECT_EQ(test::read_file(file).value("a?[2Jb?").integer(), 9u);
}

TEST(KvmStats, UnusableHeaders) {
  const auto problem = [](File file) { return parse_stats_layout(test::reader(file.bytes())).problem; };
  File names = sound();
  names.name_size = kMaxStatNameBytes + 1;
  EXPECT_FALSE(problem(names).empty());
  File many = sound();
  many.claimed_entries = kMaxStatDescriptors + 1;
  EXPECT_FALSE(problem(many).empty());
  File more = sound();
  more.claimed_entries = 40;  // sane, but the file ends before
  EXPECT_FALSE(problem(more).empty());
  EXPECT_FALSE(parse_stats_layout(test::reader({})).problem.empty());
  EXPECT_FALSE(parse_stats_layout(test::reader(std::vector<std::byte>(23))).problem.empty());
  EXPECT_FALSE(parse_stats_layout(test::reader(std::vector<std::byte>(24))).problem.empty());
}

TEST(KvmStats, EveryTruncationIsHandled) {
  const auto bytes = sound().bytes();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const auto source = test::reader({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)});
    const auto snapshot = read_stats(parse_stats_layout(source), source);
    // The last values of the file are missing, whatever else is.
    EXPECT_FALSE(snapshot.value("peak_bytes").known()) << length;
  }
}

TEST(KvmStats, ReadErrorIsNamed) {
  const ReadAt source = [](std::uint64_t, std::span<std::byte>) -> std::int64_t { return -EIO; };
  const auto layout = parse_stats_layout(source);
  EXPECT_NE(layout.problem.find("EIO"), std::string::npos);
  EXPECT_FALSE(read_stats(layout, source).value("exits").known());
}

TEST(KvmStats, EmptyListIsNoError) {
  const auto snapshot = test::read_file({});
  EXPECT_TRUE(snapshot.problem.empty());
  EXPECT_FALSE(snapshot.value("exits").known());
}

TEST(KvmStats, ReaderThatClaimsTooMuchIsNotBelieved) {
  const ReadAt source = [](std::uint64_t, std::span<std::byte> into) -> std::int64_t {
    return static_cast<std::int64_t>(into.size()) + 1;
  };
  EXPECT_FALSE(parse_stats_layout(source).problem.empty());
}

TEST(KvmStats, BadFdShowsInEverySnapshot) {
  const KvmStatsReader reader{base::UniqueFd()};
  EXPECT_FALSE(reader.read().value("exits").known());
  const auto none = KvmStatsReader::unavailable("this KVM has no binary statistics");
  EXPECT_EQ(none.read().value("exits").reason(), "this KVM has no binary statistics");
}

}  // namespace
}  // namespace vmm::stats
