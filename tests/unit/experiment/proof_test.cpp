// SPDX-License-Identifier: Apache-2.0
#include "experiment/proof.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/kvm.h>

namespace vmm::experiment {
namespace {

using ::testing::HasSubstr;

struct Counts {
  std::optional<std::uint64_t> hlt = 100, polls = 0, hits = 0, misses = 0;
};

std::vector<stats::VcpuSnapshot> vcpus(const Counts& counts) {
  stats::VcpuSnapshot vcpu;
  const auto set = [&](const char* name, std::optional<std::uint64_t> value) {
    if (value) vcpu.counters[name] = stats::Value::count(*value, stats::Source::kKvmStats);
  };
  set("hlt_exits", counts.hlt);
  set("halt_polls_attempted", counts.polls);
  set("guest_spin_hits", counts.hits);
  set("guest_spin_misses", counts.misses);
  return {vcpu};
}

std::optional<bool> holds(const std::vector<Proof>& proofs, const std::string& what) {
  const auto proof = std::ranges::find(proofs, what, &Proof::what);
  return proof == proofs.end() ? std::nullopt : proof->holds;
}

const nlohmann::json kHello = {{"idle_driver", "none"}, {"idle_governor", nullptr}, {"cmdline", "console=ttyS0 quiet"}};

TEST(Proof, ASpinIsReadBackAndSpins) {
  GuestConfig guest;
  guest.guest_spin_us = 50;
  EXPECT_EQ(holds(prove(guest, kHello, {{"idle_spin_us", 50U}}, vcpus({.hits = 3})), "idle_spin"), true);
  EXPECT_EQ(holds(prove(guest, kHello, {{"idle_spin_us", 50U}}, vcpus({})), "idle_spin"), false)
      << "read back, no effect";
  EXPECT_EQ(holds(prove(guest, kHello, {{"idle_spin_us", 40U}}, vcpus({.hits = 3})), "idle_spin"), false);
  EXPECT_EQ(holds(prove(guest, kHello, nlohmann::json::object(), vcpus({.hits = 3})), "idle_spin"), false);
  EXPECT_EQ(holds(prove(guest, kHello, {{"idle_spin_us", 50U}}, vcpus({.hits = {}})), "idle_spin"), std::nullopt);
}

TEST(Proof, AnArmThatDoesNotSpinMustNot) {
  EXPECT_EQ(holds(prove({}, kHello, {{"idle_spin_us", 0U}}, vcpus({})), "idle_spin"), true);
  EXPECT_EQ(holds(prove({}, kHello, {{"idle_spin_us", 0U}}, vcpus({.misses = 1})), "idle_spin"), false);
}

TEST(Proof, HostPollingIsShownByItsPolls) {
  GuestConfig guest;
  EXPECT_EQ(holds(prove(guest, kHello, {}, vcpus({.polls = 1})), "host halt-poll"), false) << "off must be off";
  guest.host_halt_poll_ns = 200'000;
  EXPECT_EQ(holds(prove(guest, kHello, {}, vcpus({.polls = 1})), "host halt-poll"), true);
  EXPECT_EQ(holds(prove(guest, kHello, {}, vcpus({.polls = 0})), "host halt-poll"), false);
  EXPECT_EQ(holds(prove(guest, kHello, {}, vcpus({.polls = {}})), "host halt-poll"), std::nullopt);
  EXPECT_EQ(holds(prove(guest, kHello, {}, vcpus({.hlt = 0})), "host halt-poll"), std::nullopt);
  const nlohmann::json haltpoll = {{"idle_driver", "haltpoll"}};
  const auto proofs = prove(guest, haltpoll, {}, vcpus({.polls = 0}));
  EXPECT_EQ(holds(proofs, "host halt-poll"), std::nullopt);
  EXPECT_THAT(std::ranges::find(proofs, "host halt-poll", &Proof::what)->seen, HasSubstr("off by guest"));
}

TEST(Proof, TheIdleMethod) {
  GuestConfig guest;
  EXPECT_EQ(holds(prove(guest, kHello, {}, vcpus({})), "idle method"), true);
  guest.guest_idle = GuestIdle::kHaltpoll;
  EXPECT_EQ(holds(prove(guest, kHello, {}, vcpus({})), "idle method"), false);
  EXPECT_EQ(holds(prove(guest, {{"idle_driver", "haltpoll"}}, {}, vcpus({})), "idle method"), true);
  guest.guest_idle = GuestIdle::kPoll;
  EXPECT_EQ(holds(prove(guest, kHello, {}, vcpus({.hlt = 0})), "idle method"), false);
  EXPECT_EQ(holds(prove(guest, {{"cmdline", "quiet idle=poll"}}, {}, vcpus({.hlt = 0})), "idle method"), true);
  EXPECT_EQ(holds(prove(guest, {{"cmdline", "quiet idle=poll"}}, {}, vcpus({.hlt = 21})), "HLT exits"), false);
  EXPECT_EQ(holds(prove(guest, {{"cmdline", "quiet idle=poll"}}, {}, vcpus({.hlt = 20})), "HLT exits"), true);
}

TEST(Proof, PassThroughLeavesNoHltExit) {
  GuestConfig guest;
  guest.disable_exits = KVM_X86_DISABLE_EXITS_HLT;
  EXPECT_EQ(holds(prove(guest, kHello, {}, vcpus({.hlt = 0})), "HLT exits"), true);
  EXPECT_EQ(holds(prove(guest, kHello, {}, vcpus({.hlt = 1})), "HLT exits"), false);
  EXPECT_EQ(holds(prove(guest, kHello, {}, vcpus({.hlt = {}})), "HLT exits"), std::nullopt);
}

TEST(Proof, AHostileAgentProvesNothing) {
  GuestConfig guest;
  guest.guest_spin_us = 50;
  guest.guest_halt_poll_ns = 7;
  guest.guest_idle = GuestIdle::kPoll;
  for (const nlohmann::json& lie : {nlohmann::json::object(), nlohmann::json{{"idle_spin_us", "50"}, {"cmdline", 3}},
                                    nlohmann::json{{"idle_spin_us", -50}, {"guest_halt_poll_ns", {7}}}}) {
    const auto proofs = prove(guest, lie, lie, vcpus({.hits = 3}));
    EXPECT_EQ(holds(proofs, "idle_spin"), false) << lie;
    EXPECT_EQ(holds(proofs, "guest_halt_poll_ns"), false) << lie;
    EXPECT_EQ(holds(proofs, "idle method"), false) << lie;
  }
}

}  // namespace
}  // namespace vmm::experiment
