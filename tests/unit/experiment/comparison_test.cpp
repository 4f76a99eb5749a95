// SPDX-License-Identifier: Apache-2.0
#include "experiment/comparison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/kvm.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.hpp"

namespace vmm::experiment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Throws;
using ::testing::ThrowsMessage;

std::vector<std::string> names(const Comparison& comparison) {
  std::vector<std::string> list;
  for (const Arm& arm : comparison.arms) list.push_back(arm.name);
  return list;
}

TEST(Preset, TheSeedsTableWithANullControl) {
  Comparison seed = preset_comparison("seed", {{"cpus", "4"}});
  complete(seed);
  EXPECT_THAT(names(seed), ElementsAre("host", "guest-spin=0", "guest-spin=50us", "guest-spin=220us", "guest-spin=best",
                                       "guest-spin=0 (again)"));
  EXPECT_EQ(seed.baseline, "guest-spin=0");
  EXPECT_EQ(seed.arms[4].best_of, Knob::kGuestSpin);
  EXPECT_EQ(seed.arms[5].null_of, "guest-spin=0");
  EXPECT_EQ(seed.arms[5].guest, seed.arms[1].guest) << "the control is the same arm twice";
  for (const Arm& arm : seed.arms) EXPECT_EQ(arm.guest.cpus, arm.host ? 2U : 4U) << arm.name;
  EXPECT_GE(seed.blocks, 8U);
}

TEST(Preset, EveryPollingPolicyHasItsOwnKnob) {
  Comparison polling = preset_comparison("polling", {});
  complete(polling);
  const auto arm = [&](const char* name) { return *std::ranges::find(polling.arms, name, &Arm::name); };
  EXPECT_EQ(arm("guest spin").best_of, Knob::kGuestSpin);
  EXPECT_EQ(arm("host poll").best_of, Knob::kHostHaltPoll);
  EXPECT_EQ(arm("haltpoll").best_of, Knob::kGuestHaltPoll);
  EXPECT_EQ(arm("haltpoll").guest.guest_idle, GuestIdle::kHaltpoll);
  EXPECT_EQ(arm("idle=poll").guest.guest_idle, GuestIdle::kPoll);
  EXPECT_EQ(arm("HLT pass-through").guest.disable_exits, std::uint64_t{KVM_X86_DISABLE_EXITS_HLT});
  EXPECT_TRUE(arm("HLT pass-through").may_lack);
  EXPECT_FALSE(polling.neighbour);
  EXPECT_TRUE(preset_comparison("contention", {}).neighbour);
}

TEST(Preset, RefusesWhatItSetsItself) {
  EXPECT_THAT([] { (void)preset_comparison("polling", {{"host-halt-poll", "1"}}); },
              ThrowsMessage<base::BadInput>(HasSubstr("--host-halt-poll")));
  EXPECT_THAT([] { (void)preset_comparison("best", {}); },
              ThrowsMessage<base::BadInput>(HasSubstr("seed, polling, contention")));
}

TEST(Grid, AllCombinationsTheHostFirst) {
  Comparison grid = grid_comparison({{"guest-spin", "0,50us"}, {"host-halt-poll", "0,200us"}, {"memory", "128M"}});
  EXPECT_THAT(names(grid), ElementsAre("host", "guest-spin=0 host-halt-poll=0", "guest-spin=0 host-halt-poll=200us",
                                       "guest-spin=50us host-halt-poll=0", "guest-spin=50us host-halt-poll=200us"));
  EXPECT_EQ(grid.arms[4].guest.guest_spin_us, 50U);
  EXPECT_EQ(grid.arms[4].guest.host_halt_poll_ns, 200'000U);
  EXPECT_EQ(grid.arms[4].guest.memory_bytes, 128U << 20);
  EXPECT_THAT(names(grid_comparison({})), ElementsAre("host", "guest"));
}

TEST(Grid, Refusals) {
  const auto refused = [](const OptionText& options) {
    Comparison comparison = grid_comparison(options);
    complete(comparison);
  };
  EXPECT_THAT([&] { refused({{"guest-spin", "0,0"}}); }, ThrowsMessage<base::BadInput>(HasSubstr("twice")));
  EXPECT_THAT([&] { refused({{"guest-spin", "best"}, {"host-halt-poll", "best"}}); },
              ThrowsMessage<base::BadInput>(HasSubstr("one knob only")));
  EXPECT_THAT([&] { refused({{"guest-spin", "0,"}}); }, ThrowsMessage<base::BadInput>(HasSubstr("''")));
  EXPECT_THAT([&] { refused({{"guest-spin", "best"}}); },
              ThrowsMessage<base::BadInput>(HasSubstr("not the same in every run")));
  EXPECT_THAT([&] { refused({{"payload", "ipi-pingpong"}}); }, ThrowsMessage<base::BadInput>(HasSubstr("--payload")));
  EXPECT_THAT([&] { refused({{"initrd", "x"}}); }, ThrowsMessage<base::BadInput>(HasSubstr("--initrd")));
  std::string many = "0";
  for (int i = 1; i < 70; ++i) many += "," + std::to_string(i);
  EXPECT_THAT([&] { refused({{"guest-spin", many}}); }, ThrowsMessage<base::BadInput>(HasSubstr("more than 63 arms")));
}

TEST(File, ArmsWithWhatTheyShare) {
  Comparison comparison = parse_comparison(R"(
workload = "tcp-pingpong:iterations=100"
blocks = 12
baseline = "plain"
[guest]
cpus = 4
guest-spin = 7
[[arm]]
name = "host"
host = true
[[arm]]
name = "spin"
[[arm]]
name = "plain"
guest-spin = 0
[[arm]]
name = "poll"
guest-spin = 0
host-halt-poll = "best"
may-lack = true
)",
                                           "x.toml", {{"memory", "512M"}});
  complete(comparison);
  EXPECT_THAT(names(comparison), ElementsAre("host", "spin", "plain", "poll", "plain (again)"));
  EXPECT_EQ(comparison.workload.parameters.at("iterations"), "100");
  EXPECT_EQ(comparison.blocks, 12U);
  EXPECT_EQ(comparison.arms[1].guest.guest_spin_us, 7U) << "an arm's own option wins, else [guest]'s";
  EXPECT_EQ(comparison.arms[2].guest.guest_spin_us, 0U);
  EXPECT_EQ(comparison.arms[2].guest.cpus, 4U);
  EXPECT_EQ(comparison.arms[2].guest.memory_bytes, 512U << 20) << "from the command line";
  EXPECT_EQ(comparison.arms[3].best_of, Knob::kHostHaltPoll);
  EXPECT_TRUE(comparison.arms[3].may_lack);
}

TEST(File, RefusalsNameTheFileTheLineAndTheKey) {
  const auto refuses = [](const char* text, const char* what) {
    EXPECT_THAT([&] { (void)parse_comparison(text, "x.toml", {}); },
                ThrowsMessage<base::BadInput>(::testing::AllOf(HasSubstr("x.toml"), HasSubstr(what))))
        << text;
  };
  refuses("[[arm\n", "line 1");
  refuses("colour = 1", "'colour'");
  refuses("blocks = 1\n1\xcc\x8a", "line 2: a letter that is not ASCII");
  refuses("blocks = 0", "blocks");
  refuses("blocks = \"many\"", "many");
  refuses("arm = 3", "[[arm]]");
  refuses("guest = 3", "must be a table");
  refuses("[[arm]]\nname = \"a\"\nspin = 3", "'spin' is no option");
  refuses("[[arm]]\nname = \"a\"\nguest-spin = 1.5", "whole number");
  refuses("[[arm]]\nname = \"a\"\nhost = 1", "true or false");
  refuses("[[arm]]\nname = \"a\"\nhost = true\ncpus = 1", "the host has no option 'cpus'");
  refuses("workload = \"a b\"", "workload");
}

TEST(Complete, Refusals) {
  const auto refuses = [](Comparison comparison, const char* what) {
    EXPECT_THAT([&] { complete(comparison); }, ThrowsMessage<base::BadInput>(HasSubstr(what)));
  };
  refuses({}, "at least one guest");
  Comparison twice = grid_comparison({});
  twice.arms.push_back(twice.arms.back());
  refuses(twice, "twice");
  Comparison host = grid_comparison({});
  host.baseline = "host";
  refuses(host, "no guest");
  Comparison nameless = grid_comparison({});
  nameless.arms.back().name.clear();
  nameless.arms.push_back(grid_comparison({}).arms.back());
  nameless.baseline = "guest";
  refuses(nameless, "needs a name");
}

TEST(BootConfig, WhatCanChangeAtRunTimeNeedsNoBoot) {
  Comparison polling = preset_comparison("polling", {});
  const auto boot = [&](const char* name) {
    return boot_config(std::ranges::find(polling.arms, name, &Arm::name)->guest);
  };
  EXPECT_EQ(boot("none"), boot("guest spin"));
  EXPECT_EQ(boot("none"), boot("host poll"));
  EXPECT_NE(boot("none"), boot("haltpoll"));
  EXPECT_NE(boot("none"), boot("HLT pass-through"));
}

TEST(BlockOrder, APermutationThatTheSeedAndTheBlockDecide) {
  std::vector<std::size_t> order = block_order(1, 0, 10);
  EXPECT_EQ(order, block_order(1, 0, 10));
  EXPECT_NE(order, block_order(1, 1, 10));
  EXPECT_NE(order, block_order(2, 0, 10));
  EXPECT_NE(order, block_order(1ULL << 40, 0, 10));
  std::ranges::sort(order);
  std::vector<std::size_t> all(10);
  std::iota(all.begin(), all.end(), std::size_t{0});
  EXPECT_EQ(order, all);
  // Each arm is first about equally often: 5 arms, 5,000 blocks.
  std::vector<int> first(5);
  for (unsigned block = 0; block < 5000; ++block) ++first[block_order(7, block, 5).front()];
  for (const int count : first) EXPECT_NEAR(count, 1000, 120);
}

TEST(SweepValues, CoverTheGapsAndGoBeyond) {
  EXPECT_THAT(sweep_values_ns(4'194'304), ElementsAre(1'000'000, 2'000'000, 5'000'000, 10'000'000, 20'000'000));
  for (const std::uint64_t gap : {0ULL, 1ULL, 50'000ULL, 3'000'000ULL, 1'000'000'000'000ULL}) {
    const auto values = sweep_values_ns(gap);
    ASSERT_GE(values.size(), 3U) << gap;
    EXPECT_TRUE(std::ranges::is_sorted(values));
    EXPECT_LE(values.back(), 1'000'000'000U);
    if (gap >= 50'000 && gap <= 100'000'000) {
      EXPECT_LT(values.front(), gap);
      EXPECT_GT(values.back(), 4 * gap);
    }
  }
  EXPECT_EQ(sweep_step_up(20'000), 50'000U);
  EXPECT_EQ(sweep_step_up(99'999), 100'000U);
  EXPECT_EQ(sweep_step_up(1'000'000'000), std::nullopt);
  EXPECT_EQ(sweep_step_down(50'000), 20'000U);
  EXPECT_EQ(sweep_step_down(10'000), std::nullopt);
}

TEST(BestValue, TheShortestOfThoseThatAreAboutAsGood) {
  EXPECT_EQ(best_value_ns({{{1, {10, 11}}, {2, {5, 5.2}}, {3, {5.05, 5.1}}}}), 2U);
  EXPECT_EQ(best_value_ns({{{1, {10}}, {2, {5.05}}, {3, {5}}}}), 2U) << "1 % slower, but polls less";
  EXPECT_EQ(best_value_ns({{{1, {10}}, {2, {5.5}}, {3, {5}}}}), 3U);
  EXPECT_EQ(best_value_ns({{{1, {}}, {2, {7}}}}), 2U) << "a value without a valid trial cannot win";
  EXPECT_THROW((void)best_value_ns({{{1, {}}}}), std::invalid_argument);
}

}  // namespace
}  // namespace vmm::experiment
