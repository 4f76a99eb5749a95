// SPDX-License-Identifier: Apache-2.0
#include "stats/exit_times.hpp"

#include <cstring>
#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <unistd.h>

#include "trace_events.hpp"

namespace vmm::stats {
namespace {

TEST(ExitTimeAccumulator, PairsExitWithNextEntry) {
  ExitTimeAccumulator times;
  times.on_exit(1000, ExitClass::kHlt);
  times.on_entry(5000);
  times.on_exit(6000, ExitClass::kIo);
  times.on_entry(6100);
  EXPECT_EQ(times.of(ExitClass::kHlt).count, 1u);
  EXPECT_EQ(times.of(ExitClass::kHlt).ns, 4000u);
  EXPECT_EQ(times.of(ExitClass::kHlt).histogram.counts.at(12), 1u);  // 2048 <= 4000 < 4096
  EXPECT_EQ(times.of(ExitClass::kIo).ns, 100u);
  EXPECT_EQ(times.of(ExitClass::kMsr).count, 0u);
}

TEST(ExitTimeAccumulator, UnpairedRecordsMeasureNothing) {
  ExitTimeAccumulator times;
  times.on_entry(10);  // the first entry has no exit before it
  times.on_exit(100, ExitClass::kHlt);
  times.on_exit(200, ExitClass::kIo);
  times.on_entry(250);
  times.on_entry(300);
  EXPECT_EQ(times.of(ExitClass::kHlt).count, 0u);
  EXPECT_EQ(times.of(ExitClass::kIo).ns, 50u);
  times.on_exit(1000, ExitClass::kHlt);
  times.on_entry(900);
  EXPECT_EQ(times.of(ExitClass::kHlt).count, 0u);
}

class Records : public testing::Test {
 protected:
  void SetUp() override {
    const auto tracepoints = test::tracepoints();
    const auto format = exit_record_format(*tracepoints.find("kvm_exit"), *tracepoints.find("kvm_entry"));
    ASSERT_TRUE(format);
    format_ = *format;
  }

  template <typename T>
  void put(const T& value) {
    const auto at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void sample(std::uint64_t time, std::vector<std::byte> raw) {
    while ((raw.size() + 4) % 8 != 0) raw.push_back({});
    put(perf_event_header{PERF_RECORD_SAMPLE, 0, static_cast<std::uint16_t>(8 + 8 + 4 + raw.size())});
    put(time);
    put(static_cast<std::uint32_t>(raw.size()));
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  void exit(std::uint64_t time, std::uint32_t reason, std::uint64_t info1 = 0) {
    std::vector<std::byte> raw(60);
    const std::uint16_t type = 2001;
    const std::uint32_t isa = 2;
    std::memcpy(raw.data(), &type, 2);
    std::memcpy(raw.data() + 8, &reason, 4);
    std::memcpy(raw.data() + 24, &isa, 4);
    std::memcpy(raw.data() + 32, &info1, 8);
    sample(time, raw);
  }
  void entry(std::uint64_t time) {
    std::vector<std::byte> raw(24);
    const std::uint16_t type = 2002;
    std::memcpy(raw.data(), &type, 2);
    sample(time, raw);
  }
  std::size_t consume() { return consume_exit_records(bytes_, format_, times_); }

  ExitRecordFormat format_;
  std::vector<std::byte> bytes_;
  ExitTimeAccumulator times_;
};

TEST_F(Records, Decoded) {
  exit(100, 0x78);
  entry(1100);
  exit(2000, 0x400, 0x8);
  entry(2010);
  EXPECT_EQ(consume(), bytes_.size());
  EXPECT_EQ(times_.of(ExitClass::kHlt).ns, 1000u);
  EXPECT_EQ(times_.of(ExitClass::kMmio).ns, 10u);
  EXPECT_EQ(times_.lost(), 0u);
}

TEST_F(Records, IncompleteRecordWaits) {
  exit(100, 0x78);
  const std::size_t complete = bytes_.size();
  entry(1100);
  bytes_.resize(bytes_.size() - 1);
  EXPECT_EQ(consume(), complete);
  EXPECT_EQ(times_.of(ExitClass::kHlt).count, 0u);
}

TEST_F(Records, LostRecordsAreCounted) {
  put(perf_event_header{PERF_RECORD_LOST, 0, 24});
  put(std::uint64_t{1});
  put(std::uint64_t{17});
  exit(100, 0x78);
  entry(200);
  EXPECT_EQ(consume(), bytes_.size());
  EXPECT_EQ(times_.lost(), 17u);
}

TEST_F(Records, ImpossibleSizesAreLossNotALoop) {
  exit(100, 0x78);
  put(perf_event_header{PERF_RECORD_SAMPLE, 0, 0});
  entry(200);
  EXPECT_EQ(consume(), bytes_.size());
  EXPECT_EQ(times_.lost(), 1u);
}

TEST_F(Records, RawSizeBeyondTheRecordIsLoss) {
  put(perf_event_header{PERF_RECORD_SAMPLE, 0, 24});
  put(std::uint64_t{100});
  put(std::uint32_t{0xffffffff});
  put(std::uint32_t{0});
  EXPECT_EQ(consume(), bytes_.size());
  EXPECT_EQ(times_.lost(), 1u);
}

TEST_F(Records, OtherRecordsAreSkipped) {
  put(perf_event_header{PERF_RECORD_THROTTLE, 0, 32});
  bytes_.resize(bytes_.size() + 24);
  exit(100, 0x78);
  entry(200);
  EXPECT_EQ(consume(), bytes_.size());
  EXPECT_EQ(times_.of(ExitClass::kHlt).ns, 100u);
}

TEST_F(Records, TooShortExitIsLoss) {
  std::vector<std::byte> raw(12);
  const std::uint16_t type = 2001;
  std::memcpy(raw.data(), &type, 2);
  sample(5, raw);
  consume();
  EXPECT_EQ(times_.lost(), 1u);
}

TEST(ExitTimes, FormatWithoutAFieldIsRefused) {
  const auto tracepoints = test::tracepoints();
  TraceEvent exit = *tracepoints.find("kvm_exit");
  exit.fields.erase("isa");
  EXPECT_FALSE(exit_record_format(exit, *tracepoints.find("kvm_entry")));
}

TEST(ExitTimes, UnavailableIsNull) {
  ExitTimes times(Tracepoints::unavailable("tracefs is not mounted", "mount it"), 1);
  times.attach_thread(0, ::gettid());
  VcpuSnapshot snapshot;
  times.read_into(snapshot);
  EXPECT_EQ(snapshot.counter("exit_time_ns.hlt").reason(), "tracefs is not mounted: mount it");
  EXPECT_EQ(snapshot.counter("exit_time_ns.hlt").unit(), Unit::kNanoseconds);
  EXPECT_FALSE(snapshot.counter("exit_time_count.other").known());
  EXPECT_FALSE(snapshot.histograms.at("exit_time_ns.io").known());
}

}  // namespace
}  // namespace vmm::stats
