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

std::vector<std::string> arms(const std::vector<std::string>& arguments) {
  const Command command = parse_command_line(arguments);  // outlives the loop over its part
  std::vector<std::string> names;
  for (const Arm& arm : std::get<CompareCommand>(command).config.comparison.arms) names.push_back(arm.name);
  return names;
}

TEST(Options, CompareIsThePresetOrAGridOrAFile) {
  EXPECT_THAT(arms({"compare", "--guest-spin=0,50us", "--blocks=5"}),
              ::testing::ElementsAre("host", "guest-spin=0", "guest-spin=50us", "guest-spin=0 (again)"));
  EXPECT_EQ(arms({"compare"}), arms({"compare", "--preset=seed"}));
  EXPECT_EQ(arms({"compare", "--cpus=4"}), arms({"compare", "--preset=seed"})) << "an option that is no list";
  EXPECT_THAT(arms({"compare", "--preset", "polling"}), ::testing::Contains("HLT pass-through"));
  const auto command = std::get<CompareCommand>(parse_command_line(
      {"compare", "x.toml", "--blocks=9", "--workload=idle", "--stats=r.json", "--resume", "--seed=3", "--csv=-"}));
  EXPECT_EQ(command.file, "x.toml");
  EXPECT_EQ(command.blocks, 9U);
  EXPECT_EQ(command.workload->name, "idle");
  EXPECT_TRUE(command.config.resume);
  EXPECT_EQ(command.config.seed, 3U);
  EXPECT_EQ(std::get<CompareCommand>(parse_command_line({"compare", "--blocks=9"})).config.comparison.blocks, 9U);
}

TEST(Options, AWorkloadOfOnesOwnIsCalledAsItsFile) {
  const auto config = run({"--workload-file=./dir/my-load"});
  EXPECT_EQ(config.workload.name, "my-load");
  EXPECT_EQ(config.guest.workload_file, "./dir/my-load");
  EXPECT_EQ(run({"--workload-file=my-load", "--workload=my-load:n=3"}).workload.parameters.at("n"), "3");
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"--workload-file=my load"},
                                              {"--workload-file=.hidden"},
                                              {"--workload-file=dir/"},
                                              {"--workload-file=a", "--workload=b"},
                                              {"--workload-file=a", "--initrd=x"},
                                              {"--workload-file=a", "--payload=x"}}) {
    EXPECT_THROW((void)parse_command_line(bad), base::BadInput) << bad.front();
  }
  const auto command = std::get<CompareCommand>(parse_command_line({"compare", "--workload-file=x/my-load"}));
  EXPECT_EQ(command.config.comparison.workload.name, "my-load");
}

TEST(Options, CheckTakesLimits) {
  const auto command = std::get<CheckCommand>(
      parse_command_line({"check", "--max", "hlt_exits_per_op=+5%", "a.json", "b.json", "--max=seconds=+20%"}));
  ASSERT_EQ(command.limits.size(), 2U);
  EXPECT_DOUBLE_EQ(command.limits[1].share, 0.2);
  EXPECT_EQ(command.baseline, "a.json");
  EXPECT_EQ(std::get<ReportCommand>(parse_command_line({"report", "a.json", "-o", "a.html"})).html, "a.html");
}

TEST(Options, HelpIsAnAnswerNotAnError) {
  const auto text = std::get<ShowText>(parse_command_line({"--help"})).text;
  for (const char* option :
       {"--guest-spin", "--host-halt-poll", "--stats", "--payload", "doctor", "compare", "report"}) {
    EXPECT_THAT(text, HasSubstr(option));
  }
  EXPECT_THAT(std::get<ShowText>(parse_command_line({"compare", "--help"})).text, HasSubstr("--blocks"));
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
                                                     {"compare", "--blocks=0"},
                                                     {"compare", "--blocks=1001"},
                                                     {"compare", "--preset=none"},
                                                     {"compare", "--preset=seed", "x.toml"},
                                                     {"compare", "--preset=polling", "--guest-spin=1"},
                                                     {"check", "a.json"},
                                                     {"check", "a", "b", "--max=hlt_exits_per_op"},
                                                     {"check", "a", "b", "--max=hlt_exits_per_op=-5%"},
                                                     {"check", "a", "b", "--max=hlt_exits_per_op=5"},
                                                     {"check", "a", "b", "--max=colour=5%"},
                                                     {"--payload=ipi-pingpong", "--workload=idle"},
                                                     {"--initrd=x", "--workload=idle"},
                                                     {"--kernel="},
                                                     {"--pin=0"}};
  for (const auto& arguments : bad) {
    EXPECT_THROW((void)parse_command_line(arguments), base::BadInput) << arguments.front();
  }
}

}  // namespace
}  // namespace vmm::app
