// SPDX-License-Identifier: Apache-2.0
#include "app/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace vmm::app {
namespace {

using experiment::Arm;
using experiment::ConsoleConfig;
using ::testing::HasSubstr;

experiment::RunConfig run(const std::vector<std::string>& arguments) {
  return std::get<RunCommand>(parse_command_line(arguments)).config;
}

TEST(Options, TheDefaultIsThePingPongOnTheBuiltGuest) {
  const auto config = run({"--guest-spin=50"});
  EXPECT_EQ(config.workload.name, "tcp-pingpong");
  EXPECT_TRUE(config.guest.kernel.empty());
  EXPECT_EQ(config.guest.guest_spin_us, 50U);
  EXPECT_EQ(config.guest.cpus, 2U);
  EXPECT_EQ(config.guest.memory_bytes, 256ULL << 20);
  EXPECT_EQ(config.watchdog_ms, 30'000U);
  EXPECT_EQ(config.timeout_ms, 0U);
  EXPECT_FALSE(run({}).guest.guest_spin_us) << "not asked is not 0";
}

TEST(Options, TimesCarryTheirUnits) {
  EXPECT_EQ(run({"--guest-spin=1ms"}).guest.guest_spin_us, 1000U);
  EXPECT_EQ(run({"--host-halt-poll=200us"}).guest.host_halt_poll_ns, 200'000U);
  EXPECT_EQ(run({"--host-halt-poll=200"}).guest.host_halt_poll_ns, 200U);
  EXPECT_EQ(run({"--timeout=2"}).timeout_ms, 2000U);
  EXPECT_EQ(run({"--timeout=500ms"}).timeout_ms, 500U);
  EXPECT_EQ(run({"--watchdog=0"}).watchdog_ms, 0U);
}

TEST(Options, AFileMayHaveParametersToo) {
  const auto config = run({"--payload", "./dir:x/ipi:rounds=5,spin_us=2"});
  EXPECT_EQ(config.guest.payload->name, "./dir:x/ipi");
  EXPECT_EQ(config.guest.payload->parameters.at("rounds"), "5");
}

TEST(Options, TheConsole) {
  EXPECT_EQ(run({}).console.kind, ConsoleConfig::Kind::kStderr);
  EXPECT_EQ(run({"--console=off"}).console.kind, ConsoleConfig::Kind::kOff);
  EXPECT_EQ(run({"--console=stdio"}).console.kind, ConsoleConfig::Kind::kStdio);
  const auto file = run({"--console=log"}).console;
  EXPECT_EQ(file.kind, ConsoleConfig::Kind::kFile);
  EXPECT_EQ(file.file, "log");
}

TEST(Options, CompareTakesAListOfSpins) {
  const auto config =
      std::get<CompareCommand>(parse_command_line({"compare", "--guest-spin=0,50us,best", "--repetitions=5"})).config;
  EXPECT_THAT(config.arms, ::testing::ElementsAre(Arm{Arm::Kind::kHost, 0}, Arm{Arm::Kind::kGuest, 0},
                                                  Arm{Arm::Kind::kGuest, 50}, Arm{Arm::Kind::kBest, 0}));
  EXPECT_EQ(config.repetitions, 5U);
}

TEST(Options, HelpIsAnAnswerNotAnError) {
  const auto text = std::get<ShowText>(parse_command_line({"--help"})).text;
  for (const char* option :
       {"--guest-spin", "--host-halt-poll", "--stats", "--payload", "doctor", "compare", "report"}) {
    EXPECT_THAT(text, HasSubstr(option));
  }
  EXPECT_THAT(std::get<ShowText>(parse_command_line({"compare", "--help"})).text, HasSubstr("--repetitions"));
}

TEST(Options, RefusalsAreBadInput) {
  const std::vector<std::vector<std::string>> bad = {{"--guest-spin=1000001"},
                                                     {"--guest-spin=1500ns"},
                                                     {"--guest-spin="},
                                                     {"--cpus=0"},
                                                     {"--cpus=65"},
                                                     {"--memory=0"},
                                                     {"--memory=65537K"},
                                                     {"--guest-idle=never"},
                                                     {"--irqchip=pic"},
                                                     {"--guest=win"},
                                                     {"--stats-interval=10"},
                                                     {"--stats-interval=1", "--stats=x"},
                                                     {"extra"},
                                                     {"doctor", "--cpus=1"},
                                                     {"report"},
                                                     {"compare", "--guest-spin=0,0"},
                                                     {"--pin=0"}};
  for (const auto& arguments : bad) {
    EXPECT_THROW((void)parse_command_line(arguments), base::BadInput) << arguments.front();
  }
}

}  // namespace
}  // namespace vmm::app
