// SPDX-License-Identifier: Apache-2.0
// The kernel's texts, as the agent reads them.

#include <gtest/gtest.h>

#include "cpu_list.hpp"
#include "external_program.hpp"
#include "idle_spin_stats.hpp"
#include "proc_interrupts.hpp"
#include "timer_list.hpp"

namespace {

using guest::parse_cpu_list;
using guest::parse_idle_spin_stats;
using guest::parse_interrupts;
using guest::parse_timer_list;

TEST(ExternalProgram, ANumberIsReadBackwardsFromWhatFollowsIt) {
  const std::string text = "Total time: 0.028 [sec]\n\n      28.670001 usecs/op\n";
  EXPECT_EQ(guest::decimal_before(text, text.find("usecs/op"), 6), 28'670'001U);
  EXPECT_EQ(guest::decimal_before(text, text.find(" [sec]"), 3), 28U);
  EXPECT_FALSE(guest::decimal_before(text, text.find("usecs/op"), 3)) << "other decimals than said";
  EXPECT_FALSE(guest::decimal_before(text, text.find("[sec]") + 5, 3)) << "no number";
  EXPECT_FALSE(guest::decimal_before("12 s", 2, 3)) << "no decimals";
  EXPECT_FALSE(guest::decimal_before("1.2.345", 7, 3));
  EXPECT_FALSE(guest::decimal_before(".345", 4, 3));
  EXPECT_FALSE(guest::decimal_before("", std::string::npos, 3));
  EXPECT_EQ(guest::decimal_before("1.234", std::string::npos, 3), 1234U);
}

// CPU 1 is offline: its column is missing, not empty.
constexpr const char* kInterrupts =
    "           CPU0       CPU2       \n"
    "  4:        301          0   IO-APIC    4-edge      ttyS0\n"
    "NMI:          0          0   Non-maskable interrupts\n"
    "LOC:       5123       4100   Local timer interrupts\n"
    "RES:         13         12   Rescheduling interrupts\n"
    "CAL:       4398 4294967295   Function call interrupts\n"
    "TLB:          1          2   TLB shootdowns\n"
    "ERR:          7\n"
    "MIS:          0\n";

TEST(Interrupts, ColumnsBelongToTheCpusOfTheHeader) {
  const auto table = parse_interrupts(kInterrupts);
  ASSERT_TRUE(table);
  EXPECT_EQ(table->cpus, (std::vector<unsigned>{0, 2}));
  EXPECT_EQ(table->value("CAL", 0), 4398U);
  EXPECT_EQ(table->value("CAL", 2), 4294967295U);
  EXPECT_EQ(table->value("RES", 2), 12U);
  EXPECT_EQ(table->value("LOC", 0), 5123U);
  EXPECT_EQ(table->value("4", 0), 301U);
  EXPECT_EQ(table->value("CAL", 1), std::nullopt);
  EXPECT_EQ(table->value("XYZ", 0), std::nullopt);
}

TEST(Interrupts, ARowWithOneValueHasNoneForOtherCpus) {
  const auto table = parse_interrupts(kInterrupts);
  EXPECT_EQ(table->value("ERR", 0), 7U);
  EXPECT_EQ(table->value("ERR", 2), std::nullopt);
}

TEST(Interrupts, DigitsInADescriptionAreNoValues) {
  const auto table = parse_interrupts("  CPU0 CPU1\n  9: 1 2 3-edge acpi\n 10: 5 6 7 8\n");
  ASSERT_TRUE(table);
  EXPECT_EQ(table->rows.at("9"), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(table->rows.at("10"), (std::vector<std::uint64_t>{5, 6}));
}

TEST(Interrupts, WhatIsNoTableIsRefused) {
  EXPECT_FALSE(parse_interrupts(""));
  EXPECT_FALSE(parse_interrupts("\n"));
  EXPECT_FALSE(parse_interrupts("CPUx CPU1\nRES: 1 2\n"));
  EXPECT_FALSE(parse_interrupts("RES: 1 2\n"));
}

// Cut from a 6.12 guest; the broadcast device comes first and is nobody's.
constexpr const char* kTimerList =
    "Timer List Version: v0.10\nHRTIMER_MAX_CLOCK_BASES: 8\nnow at 3688666500450 nsecs\n\n"
    "cpu: 0\n clock 0:\n  .base:       00000000eebf1644\nactive timers:\n"
    " #0: <00000000af2c686a>, tick_nohz_handler, S:01\n"
    "  .expires_next   : 3688668000000 nsecs\n  .hres_active    : 1\n  .nr_events      : 17\n"
    "cpu: 1\n clock 0:\n  .hres_active    : 0\n  .nohz           : 1\n"
    "\nTick Device: mode:     1\nBroadcast device\nClock Event Device: <NULL>\n"
    "tick_broadcast_mask: 0\n\n"
    "Tick Device: mode:     1\nPer CPU device: 0\nClock Event Device: lapic-deadline\n max_delta_ns:   1\n\n"
    "Tick Device: mode:     0\nPer CPU device: 1\nClock Event Device: pit\n";

TEST(TimerList, HresAndDeviceOfEachCpu) {
  const auto cpus = parse_timer_list(kTimerList);
  ASSERT_EQ(cpus.size(), 2U);
  EXPECT_TRUE(cpus.at(0).hres_active);
  EXPECT_EQ(cpus.at(0).clock_event, "lapic-deadline");
  EXPECT_FALSE(cpus.at(1).hres_active);
  EXPECT_EQ(cpus.at(1).clock_event, "pit");
}

TEST(TimerList, ACpuWithoutTheLineIsNotActive) {
  const auto cpus = parse_timer_list("cpu: 0\n  .nohz : 1\ncpu: 1\n  .hres_active    : 1\n");
  EXPECT_FALSE(cpus.at(0).hres_active);
  EXPECT_EQ(cpus.at(0).clock_event, "");
  EXPECT_TRUE(cpus.at(1).hres_active);
}

TEST(TimerList, ABroadcastDeviceIsNotTheLastCpus) {
  const auto cpus = parse_timer_list(
      "cpu: 0\n  .hres_active    : 1\nTick Device: mode: 1\nPer CPU device: 0\nClock Event Device: lapic\n"
      "Tick Device: mode: 1\nBroadcast device\nClock Event Device: hpet\n");
  EXPECT_EQ(cpus.at(0).clock_event, "lapic");
}

TEST(IdleSpinStats, EveryNameAndAllGaps) {
  const auto cpus = parse_idle_spin_stats(
      "cpu 0 remote_hits 5 local_hits 2 misses 1 spin_ns 93 gaps 0 1 2\n"
      "cpu 3 remote_hits 18446744073709551615 local_hits 0 misses 0 spin_ns 0 gaps 7\n");
  ASSERT_EQ(cpus.size(), 2U);
  EXPECT_EQ(cpus.at(0).remote_hits, 5U);
  EXPECT_EQ(cpus.at(0).local_hits, 2U);
  EXPECT_EQ(cpus.at(0).misses, 1U);
  EXPECT_EQ(cpus.at(0).spin_ns, 93U);
  EXPECT_EQ(cpus.at(0).gaps, (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(cpus.at(3).remote_hits, UINT64_MAX);
}

TEST(IdleSpinStats, NewNamesArePassedOverMissingOnesAreUnknown) {
  const auto cpus = parse_idle_spin_stats("cpu 0 remote_hits 5 shiny 9 gaps\n");
  EXPECT_EQ(cpus.at(0).remote_hits, 5U);
  EXPECT_EQ(cpus.at(0).misses, std::nullopt);
  EXPECT_TRUE(cpus.at(0).gaps.empty());
}

TEST(IdleSpinStats, BrokenLinesAreLeftOut) {
  EXPECT_TRUE(parse_idle_spin_stats("cpu 0 remote_hits x gaps 1\n").empty());
  EXPECT_TRUE(parse_idle_spin_stats("cpu 0 remote_hits\n").empty());
  EXPECT_TRUE(parse_idle_spin_stats("cpu 0 gaps 1 x\n").empty());
  EXPECT_TRUE(parse_idle_spin_stats("version 1\n").empty());
}

TEST(CpuList, RangesAndSingles) {
  EXPECT_EQ(parse_cpu_list("0\n"), (std::vector<unsigned>{0}));
  EXPECT_EQ(parse_cpu_list("0-2,5"), (std::vector<unsigned>{0, 1, 2, 5}));
  for (const char* bad : {"", "\n", "a", "1-", "-1", "3-1", "0,,1", "0,", "1024", "0-99999999999"}) {
    EXPECT_FALSE(parse_cpu_list(bad)) << bad;
  }
}

}  // namespace
