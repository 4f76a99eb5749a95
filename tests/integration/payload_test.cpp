// SPDX-License-Identifier: Apache-2.0
// Bare-metal payloads on a real /dev/kvm: this machine's own, and the nested host's. There tracepoints can be counted,
// and then they must agree with the payload to the last count.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "vmm_process.hpp"

namespace vmm::integration {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PayloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kvm_is_here()) GTEST_SKIP() << "no /dev/kvm that can be opened";
  }
};

struct Agreements {
  int agree = 0, disagree = 0, unknown = 0;
};
Agreements agreements(const json& document) {
  Agreements count;
  for (const json& pair : document.at("agreements")) {
    if (pair.at("agree").is_null()) {
      ++count.unknown;
    } else if (pair.at("agree").get<bool>()) {
      ++count.agree;
    } else {
      ++count.disagree;
      ADD_FAILURE() << "sources disagree: " << pair.dump();
    }
  }
  return count;
}

// With tracepoints every pair must agree; without, IPIs are null with the reason.
void expect_sources(const json& document) {
  const Agreements count = agreements(document);
  EXPECT_EQ(count.disagree, 0);
  const json& ipi = document.at("vcpus").at(0).at("counters").at("ipi_injected_call_function");
  if (nested()) {
    EXPECT_FALSE(ipi.at("value").is_null()) << ipi.dump();
    EXPECT_GE(count.agree, 8);
  } else if (ipi.at("value").is_null()) {
    EXPECT_NE(ipi.at("reason"), "");
    EXPECT_GE(count.agree, 2) << "HLT exits by KVM and by the payload, for each vCPU";
  }
}

TEST_F(PayloadTest, HltExitsOfThePingPongAreExact) {
  for (const char* spin : {"0", "1000"}) {
    const Finished run =
        run_vmm({"--payload", "ipi-pingpong:rounds=1000", std::string("--guest-spin=") + spin, "--timeout=60"});
    ASSERT_EQ(run.status, 0) << run.err;
    for (std::size_t vcpu : {0U, 1U}) {
      EXPECT_EQ(counter(run.json, vcpu, "hlt_exits"), counter(run.json, vcpu, "guest_hlt")) << "spin " << spin;
    }
    EXPECT_EQ(run.json.at("workload").at("operations"), 1000);
    expect_sources(run.json);
  }
}

TEST_F(PayloadTest, IpisAreCreditedToTheTarget) {
  const Finished run = run_vmm({"--payload", "ipi-one-way:rounds=500", "--timeout=60"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(counter(run.json, 0, "guest_ipi_sent"), 500U);
  EXPECT_EQ(counter(run.json, 0, "guest_ipi_received"), 0U);
  EXPECT_EQ(counter(run.json, 1, "guest_ipi_received"), 500U);
  EXPECT_EQ(counter(run.json, 1, "hlt_exits"), counter(run.json, 1, "guest_hlt"));
  expect_sources(run.json);
  if (nested()) {
    EXPECT_EQ(counter(run.json, 0, "ipi_injected_call_function"), 0U) << "the sender receives none";
    EXPECT_EQ(counter(run.json, 1, "ipi_injected_call_function"), 500U);
    EXPECT_EQ(counter(run.json, 0, "ipi_sent_call_function"), 500U);
    EXPECT_EQ(counter(run.json, 1, "ipi_sent_call_function"), 0U);
    EXPECT_EQ(counter(run.json, 1, "timer_interrupts"), 0U) << "an IPI is no timer interrupt";
  }
}

TEST_F(PayloadTest, TimerWakeUpsAreNoIpis) {
  const Finished run = run_vmm({"--payload", "hlt-wake:rounds=200", "--timeout=60"});
  ASSERT_EQ(run.status, 0) << run.err;
  for (std::size_t vcpu : {0U, 1U}) {
    EXPECT_EQ(counter(run.json, vcpu, "hlt_exits"), counter(run.json, vcpu, "guest_hlt"));
    if (nested()) {
      EXPECT_EQ(counter(run.json, vcpu, "ipi_injected_call_function"), 0U);
      EXPECT_EQ(counter(run.json, vcpu, "timer_interrupts"), counter(run.json, vcpu, "guest_timer_interrupts"));
    }
  }
  expect_sources(run.json);
}

TEST_F(PayloadTest, HostHaltPollingIsShownByItsEffect) {
  const Finished off = run_vmm({"--payload", "ipi-one-way:rounds=300", "--host-halt-poll=0", "--timeout=60"});
  const Finished on = run_vmm({"--payload", "ipi-one-way:rounds=300", "--host-halt-poll=10ms", "--timeout=60"});
  ASSERT_EQ(off.status, 0) << off.err;
  ASSERT_EQ(on.status, 0) << on.err;
  EXPECT_EQ(counter_sum(off.json, "halt_polls_attempted"), 0U);
  EXPECT_GT(counter_sum(on.json, "halt_polls_attempted"), 0U);
  EXPECT_EQ(off.json.at("config").at("host_halt_poll_ns"), 0);
  EXPECT_EQ(on.json.at("config").at("host_halt_poll_ns"), 10'000'000);
}

TEST_F(PayloadTest, ExitCostReportsWhatItCouldMeasure) {
  const Finished run = run_vmm({"--payload", "exit-cost:rounds=50", "--timeout=60"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.json.at("workload").at("name"), "exit-cost");
}

TEST_F(PayloadTest, EveryVcpuStarts) {
  // 64 vCPUs that all run and are all counted take minutes on the two emulated CPUs of the nested host.
  for (const char* cpus : {"1", "2", nested() ? "8" : "64"}) {
    const Finished run = run_vmm({"--payload", "smp-hello", std::string("--cpus=") + cpus, "--timeout=60"});
    ASSERT_EQ(run.status, 0) << cpus << ": " << run.err;
    EXPECT_EQ(run.json.at("vcpus").size(), std::stoul(cpus));
  }
}

TEST_F(PayloadTest, AllMemoryIsThereAboveTheHoleToo) {
  for (const char* memory : {"64M", "3G", "5G"}) {
    const Finished run =
        run_vmm({"--payload", "touch-memory", "--cpus=1", std::string("--memory=") + memory, "--timeout=100"});
    EXPECT_EQ(run.status, 0) << memory << ": " << run.err;
  }
}

TEST_F(PayloadTest, TheExitValueBecomesTheStatus) {
  EXPECT_EQ(run_vmm({"--payload", "exit-value:value=0", "--timeout=20"}).status, 0);
  EXPECT_EQ(run_vmm({"--payload", "exit-value:value=1", "--timeout=20"}).status, 1);
  const Finished seven = run_vmm({"--payload", "exit-value:value=7", "--timeout=20"});
  EXPECT_EQ(seven.status, 7);
  EXPECT_THAT(seven.err, HasSubstr("value 7"));
  // 4 is the VMM's word for a crash, which this is not.
  EXPECT_EQ(run_vmm({"--payload", "exit-value:value=4", "--timeout=20"}).status, 1);
}

TEST_F(PayloadTest, ATripleFaultEndsAtOnceWithItsState) {
  const Finished run = run_vmm({"--payload", "triple-fault", "--timeout=20"});
  EXPECT_EQ(run.status, 4);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("triple fault"), HasSubstr("rip 0x"), HasSubstr("code ["), HasSubstr("console")));
  EXPECT_EQ(run.json.at("exit").at("status"), 4) << "statistics so far are kept";
}

TEST_F(PayloadTest, WedgedPayloadsEndByTheTimeOut) {
  for (const char* payload : {"wedge-cli-hlt", "wedge-spin", "flood-console"}) {
    const Finished run = run_vmm({"--payload", payload, "--timeout=1", "--console=off"});
    EXPECT_EQ(run.status, 124) << payload << run.err;
    EXPECT_THAT(run.err, AllOf(HasSubstr("--timeout=1"), HasSubstr("rip 0x"))) << payload;
    EXPECT_EQ(run.json.at("exit").at("status"), 124) << payload;
    EXPECT_EQ(agreements(run.json).disagree, 0) << "the counters of a time-out are of one instant too";
  }
}

TEST_F(PayloadTest, WithStatsOnStandardOutputItHoldsNothingElse) {
  const Finished run = run_vmm({"--payload", "ipi-one-way:rounds=10", "--timeout=60", "--stats=-"}, false);
  ASSERT_EQ(run.status, 0) << run.err;
  const json document = json::parse(run.out, nullptr, false);
  ASSERT_FALSE(document.is_discarded());
  EXPECT_EQ(document.at("schema"), "vmm.run/1");
}

TEST_F(PayloadTest, ATimeSeriesIsLinesThatGrow) {
  std::string name = (std::filesystem::temp_directory_path() / "vmm-series-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const std::string path = name + "/series";
  const Finished run = run_vmm(
      {"--payload", "wedge-cli-hlt", "--timeout=1", "--console=off", "--stats=" + path, "--stats-interval=100"}, false);
  EXPECT_EQ(run.status, 124);
  std::ifstream file(path);
  int samples = 0;
  double last_ms = 0;
  bool document = false;
  for (std::string line; std::getline(file, line);) {
    const json entry = json::parse(line, nullptr, false);
    ASSERT_FALSE(entry.is_discarded()) << line;
    if (entry.at("schema") == "vmm.sample/1") {
      ++samples;
      EXPECT_GT(entry.at("ms_since_exec").get<double>(), last_ms);
      last_ms = entry.at("ms_since_exec");
      EXPECT_EQ(entry.at("vcpus").size(), 2U);
    } else {
      EXPECT_EQ(entry.at("schema"), "vmm.run/1");
      document = true;
    }
  }
  EXPECT_GE(samples, 3);
  EXPECT_TRUE(document);
  std::filesystem::remove_all(name);
}

TEST_F(PayloadTest, Usr1DumpsWithoutEnding) {
  VmmProcess process({"--payload", "wedge-spin", "--timeout=20", "--console=off"});
  ASSERT_TRUE(process.wait_until([&] { return process.has_thread("vcpu1"); }));
  ::kill(process.pid(), SIGUSR1);
  ASSERT_TRUE(process.wait_until([&] { return process.standard_error().find("exits") != std::string::npos; }));
  EXPECT_EQ(::kill(process.pid(), 0), 0) << "it goes on";
  ::kill(process.pid(), SIGTERM);
  EXPECT_EQ(process.wait(), 128 + SIGTERM);
  EXPECT_THAT(process.standard_error(), HasSubstr("vCPU 1"));
}

TEST_F(PayloadTest, EndSignalsEndTheRunAndKeepTheStatistics) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    VmmProcess process({"--payload", "wedge-spin", "--timeout=20", "--console=off"});
    ASSERT_TRUE(process.wait_until([&] { return process.has_thread("vcpu1"); }));
    ::kill(process.pid(), signal);
    EXPECT_EQ(process.wait(), 128 + signal);
    EXPECT_THAT(process.standard_output(), HasSubstr("exits"));
  }
}

// ---- Bad input: one line that names the option, the value, the limit, what would work; nothing written. ----

struct BadCase {
  const char* name;
  std::vector<std::string> arguments;
  int status;
  std::vector<std::string> says;
};
class BadInputTest : public PayloadTest, public ::testing::WithParamInterface<BadCase> {};

TEST_P(BadInputTest, IsOneLineAndWritesNothing) {
  const BadCase& bad = GetParam();
  const Finished run = run_vmm(bad.arguments, bad.arguments.front() != "doctor");
  EXPECT_EQ(run.status, bad.status) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.json.is_null()) << "nothing is written";
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_THAT(run.err, Not(HasSubstr("internal error")));
  for (const std::string& text : bad.says) EXPECT_THAT(run.err, HasSubstr(text));
}

INSTANTIATE_TEST_SUITE_P(
    Options, BadInputTest,
    ::testing::Values(
        BadCase{"memory_0", {"--payload", "smp-hello", "--memory=0"}, 2, {"--memory", "'0'", "64M"}},
        BadCase{"memory_184K", {"--payload", "smp-hello", "--memory=184K"}, 2, {"--memory", "'184K'", "64M"}},
        BadCase{"memory_12599K", {"--payload", "smp-hello", "--memory=12599K"}, 2, {"--memory", "'12599K'", "64M"}},
        BadCase{"memory_odd", {"--payload", "smp-hello", "--memory=67108865"}, 2, {"--memory", "4K", "64M works"}},
        BadCase{"memory_huge", {"--payload", "smp-hello", "--memory=600G"}, 2, {"--memory", "512G"}},
        BadCase{"cpus_0", {"--payload", "smp-hello", "--cpus=0"}, 2, {"--cpus", "'0'", "1 to 64"}},
        BadCase{"cpus_65", {"--payload", "smp-hello", "--cpus=65"}, 2, {"--cpus", "'65'", "1 to 64"}},
        BadCase{"cpus_text", {"--payload", "smp-hello", "--cpus=two"}, 2, {"--cpus", "'two'"}},
        BadCase{"spin_high", {"--payload", "smp-hello", "--guest-spin=1000001"}, 2, {"--guest-spin", "1000001", "1s"}},
        BadCase{"spin_text", {"--payload", "smp-hello", "--guest-spin=abc"}, 2, {"--guest-spin", "'abc'"}},
        BadCase{"spin_ns", {"--payload", "smp-hello", "--guest-spin=1500ns"}, 2, {"--guest-spin", "microseconds"}},
        BadCase{"halt_poll", {"--payload", "smp-hello", "--host-halt-poll=2s"}, 2, {"--host-halt-poll", "'2s'", "1s"}},
        BadCase{
            "exits", {"--payload", "smp-hello", "--disable-exits=hlt,foo"}, 2, {"--disable-exits", "'foo'", "cstate"}},
        BadCase{"pin_count", {"--payload", "smp-hello", "--pin=0"}, 2, {"--pin", "2 vCPUs"}},
        BadCase{"pin_absent", {"--payload", "smp-hello", "--pin=0,4095"}, 2, {"--pin", "4095"}},
        BadCase{"irqchip", {"--payload", "smp-hello", "--irqchip=magic"}, 2, {"--irqchip", "'magic'"}},
        BadCase{"unknown_option", {"--payloads", "smp-hello"}, 2, {"--payloads"}},
        BadCase{"unknown_payload", {"--payload", "no-such"}, 2, {"--payload", "no-such"}},
        BadCase{"payload_path", {"--payload", "./no-such"}, 2, {"./no-such", "ENOENT"}},
        BadCase{"payload_directory", {"--payload", "/tmp"}, 2, {"/tmp", "directory"}},
        BadCase{"payload_arguments", {"--payload", "smp-hello:a"}, 2, {"--payload", "'a'"}},
        BadCase{"payload_and_kernel", {"--payload", "smp-hello", "--kernel=x"}, 2, {"--kernel", "--payload"}},
        BadCase{"kernel_absent", {"--kernel", "/no/such/vmlinuz"}, 2, {"--kernel", "/no/such/vmlinuz"}},
        BadCase{"kernel_is_text",
                {"--kernel", "/etc/services", "--initrd", "/etc/services"},
                2,
                {"--kernel", "/etc/services", "neither"}},
        BadCase{"device_absent", {"doctor", "--device=/no/such/kvm"}, 3, {"/no/such/kvm", "ENOENT"}},
        BadCase{"device_is_no_kvm", {"doctor", "--device=/dev/null"}, 3, {"/dev/null", "not a KVM device"}}),
    [](const auto& bad) { return bad.param.name; });

TEST_F(PayloadTest, AnUnwritableResultIsSaidBeforeTheRun) {
  const Finished run = run_vmm({"--payload", "wedge-spin", "--timeout=20", "--stats=/no/such/directory/x"}, false);
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("--stats"), HasSubstr("/no/such/directory")));
}

TEST_F(PayloadTest, AFullDiskIsAnError) {
  const Finished run = run_vmm({"--payload", "exit-value", "--timeout=20", "--stats=/dev/full"}, false);
  EXPECT_EQ(run.status, 3);
  EXPECT_THAT(run.err, HasSubstr("ENOSPC"));
}

TEST_F(PayloadTest, ABusyKvmIsNamedWithWhatToDo) {
  const std::string shim = (build_directory() / "bin/libbusy-kvm.so").string();
  ASSERT_TRUE(std::filesystem::exists(shim)) << shim;
  ::setenv("LD_PRELOAD", shim.c_str(), 1);
  ::setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
  const Finished run = run_vmm({"--payload", "smp-hello"});
  ::unsetenv("LD_PRELOAD");
  ::unsetenv("ASAN_OPTIONS");
  EXPECT_EQ(run.status, 3);
  EXPECT_THAT(run.err, AllOf(HasSubstr("KVM_CREATE_VM"), HasSubstr("EBUSY"), HasSubstr("another hypervisor")));
  EXPECT_TRUE(run.json.is_null()) << "nothing is written";
}

TEST_F(PayloadTest, WithoutPermissionItSaysHowToGetIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  // doctor needs no file of the checkout, which that user may not be able to read.
  VmmProcess process({"doctor"}, 65534);
  EXPECT_EQ(process.wait(), 3);
  EXPECT_THAT(process.standard_error(), AllOf(HasSubstr("/dev/kvm"), HasSubstr("EACCES"), HasSubstr("group")));
}

}  // namespace
}  // namespace vmm::integration
