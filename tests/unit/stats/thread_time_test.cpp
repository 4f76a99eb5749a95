// SPDX-License-Identifier: Apache-2.0
#include "stats/thread_time.hpp"

#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace vmm::stats {
namespace {

// Fields 3 to 52, each its own number.
std::string stat_text(const std::string& comm) {
  std::string text = "123 (" + comm + ") S";
  for (int field = 4; field <= 52; ++field) text += " " + std::to_string(1000 + field);
  return text + "\n";
}

TEST(ThreadTime, StatFields) {
  const auto stat = parse_thread_stat(stat_text("vcpu 0"));
  ASSERT_TRUE(stat);
  EXPECT_EQ(*stat, (ThreadStat{1014, 1015, 1043}));
}

TEST(ThreadTime, CommMayHoldAnything) {
  EXPECT_EQ(parse_thread_stat(stat_text("a) R 1 2 (b")), parse_thread_stat(stat_text("x")));
  EXPECT_EQ(parse_thread_stat(stat_text("")), parse_thread_stat(stat_text("x")));
}

TEST(ThreadTime, OddStatGivesNothing) {
  EXPECT_FALSE(parse_thread_stat(""));
  EXPECT_FALSE(parse_thread_stat("1 (x) S 1 2 3"));
  std::string negative = stat_text("x");
  negative.replace(negative.find("1014"), 4, "-14");
  EXPECT_FALSE(parse_thread_stat(negative));
  std::string huge = stat_text("x");
  huge.replace(huge.find("1043"), 4, "99999999999999999999999");
  EXPECT_FALSE(parse_thread_stat(huge));
}

TEST(ThreadTime, Schedstat) {
  EXPECT_EQ(parse_thread_schedstat("2770694035 29156359 171\n"), (ThreadSchedstat{2770694035, 29156359}));
  EXPECT_FALSE(parse_thread_schedstat("12\n"));
  EXPECT_FALSE(parse_thread_schedstat("a b c\n"));
}

TEST(ThreadTime, BlockedTimeIsMillisecondsWithSixDecimals) {
  EXPECT_EQ(parse_thread_blocked_ns("vmm (7, #threads: 3)\nse.vruntime : 1.5\nwait_sum : 0.1\n"
                                    "sum_sleep_runtime                            :          1234.000567\n"
                                    "sum_block_runtime                            :             9.000001\n"),
            1234'000'567u);
  EXPECT_EQ(parse_thread_blocked_ns("se.statistics.sum_sleep_runtime : 0.000001\n"), 1u);
  EXPECT_FALSE(parse_thread_blocked_ns("nr_switches : 12\n"));
  EXPECT_FALSE(parse_thread_blocked_ns("sum_sleep_runtime : 12\n"));
  EXPECT_FALSE(parse_thread_blocked_ns("sum_sleep_runtime : 12.5\n"));
  EXPECT_FALSE(parse_thread_blocked_ns("sum_sleep_runtime : -1.000000\n"));
  EXPECT_FALSE(parse_thread_blocked_ns("sum_sleep_runtime"));
}

TEST(ThreadTime, Switches) {
  const std::string text = "Name:\tvmm\nvoluntary_ctxt_switches:\t1886\nnonvoluntary_ctxt_switches:\t251\n";
  EXPECT_EQ(parse_thread_status(text), (ThreadSwitches{1886, 251}));
  EXPECT_FALSE(parse_thread_status("Name:\tvmm\nnonvoluntary_ctxt_switches:\t251\n"));
  EXPECT_FALSE(parse_thread_status("Name:\tvmm\nvoluntary_ctxt_switches:\t\nnonvoluntary_ctxt_switches:\t251\n"));
}

TEST(ThreadTime, OwnThreadHasSpentTime) {
  VcpuSnapshot before;
  merge_thread_time(before, ::gettid());
  volatile std::uint64_t sink = 0;
  for (std::uint64_t i = 0; i < 20'000'000; ++i) sink = sink + i;
  VcpuSnapshot after;
  merge_thread_time(after, ::gettid());
  const VcpuSnapshot interval = difference(before, after);
  ASSERT_TRUE(interval.counter("cpu_user_ns").known()) << interval.counter("cpu_user_ns").reason();
  EXPECT_EQ(interval.counter("cpu_guest_ns").integer(), 0u);
  EXPECT_TRUE(interval.counter("switches_involuntary").known());
  if (interval.counter("cpu_on_ns").known()) {
    EXPECT_GT(*interval.counter("cpu_on_ns").integer(), 1'000'000u);
  }
}

TEST(ThreadTime, NoSuchThreadIsNull) {
  VcpuSnapshot snapshot;
  merge_thread_time(snapshot, 0x7ffffff0);
  for (const char* name : {"cpu_guest_ns", "cpu_user_ns", "cpu_system_ns", "cpu_on_ns", "run_delay_ns", "blocked_ns",
                           "switches_voluntary", "switches_involuntary"}) {
    ASSERT_TRUE(snapshot.counters.contains(name)) << name;
    EXPECT_FALSE(snapshot.counter(name).known()) << name;
    EXPECT_FALSE(snapshot.counter(name).reason().empty()) << name;
  }
}

}  // namespace
}  // namespace vmm::stats
