// SPDX-License-Identifier: Apache-2.0
// The agent's protocol, against a VMM that answers by script and a guest made of plain files.

#include "agent/session.hpp"

#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <thread>

namespace {

using guest::Files;
using guest::Json;
using guest::Session;

class ScriptedVmm final : public guest::Link {
 public:
  std::string exchange(std::string_view text) override {
    lines.push_back(Json::parse(text));
    const Json& line = lines.back();
    const std::string type = line.at("type");
    if (type == "mark") return on_mark ? on_mark(line) : R"({"mark":"ok"})";
    if (type != "hello" && type != "next") return "";
    if (commands.empty()) return R"({"cmd":"poweroff"})";
    const std::string command = commands.front();
    commands.pop_front();
    return command;
  }
  std::vector<Json> of_type(const std::string& type) const {
    std::vector<Json> found;
    for (const Json& line : lines) {
      if (line.at("type") == type) found.push_back(line);
    }
    return found;
  }

  std::deque<std::string> commands;
  std::function<std::string(const Json& mark)> on_mark;
  std::vector<Json> lines;
};

class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    std::string pattern = testing::TempDir() + "guest-XXXXXX";
    root = mkdtemp(pattern.data());
    put("/proc/interrupts", interrupts(100));
    put("/proc/timer_list", timer_list("1"));
    put("/proc/version", "Linux version 6.12.117 (build) #1 SMP PREEMPT_RT now\n");
    put("/proc/cmdline", "quiet\n");
    put("/sys/devices/system/cpu/online", "0-1\n");
    put("/sys/devices/system/cpu/cpuidle/current_driver", "none\n");
    put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "kvm-clock\n");
    put("/sys/kernel/sched/idle_spin", "0\n");
    put("/sys/kernel/debug/idle_spin/stats",
        "cpu 0 remote_hits 5 local_hits 2 misses 1 spin_ns 93 gaps 0 4\ncpu 1 remote_hits 6 local_hits 0 misses 0 "
        "spin_ns 9 gaps 1 1\n");
  }
  ~SessionTest() override { std::filesystem::remove_all(root); }

  void put(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = root + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  void put_workload(const std::string& name, const std::string& script) const {
    put("/bin/" + name, "#!/bin/sh\n" + script);
    ASSERT_EQ(chmod((root + "/bin/" + name).c_str(), 0755), 0);
  }
  static std::string interrupts(int calls) {
    return " CPU0 CPU1\nLOC: 1000 2000 Local\nRES: 13 12 Resched\nCAL: " + std::to_string(calls) + " 200 Calls\n";
  }
  static std::string timer_list(const std::string& hres_of_cpu1) {
    return "cpu: 0\n .hres_active : 1\ncpu: 1\n .hres_active : " + hres_of_cpu1 +
           "\nTick Device: mode: 1\nPer CPU device: 0\nClock Event Device: lapic-deadline\n"
           "Tick Device: mode: 1\nPer CPU device: 1\nClock Event Device: lapic-deadline\n";
  }
  // Runs to the power-off. Lines of the types "next" and "hello" are the VMM's cue, not part of what is compared.
  void serve(std::deque<std::string> commands) {
    vmm.commands = std::move(commands);
    const Files files(root);
    Session(vmm, files).serve();
  }
  Json only(const std::string& type) const {
    const auto found = vmm.of_type(type);
    EXPECT_EQ(found.size(), 1U) << type;
    return found.empty() ? Json::object() : found.front();
  }
  // What the steps after hello were, without "next".
  std::vector<std::string> steps() const {
    std::vector<std::string> types;
    for (const Json& line : vmm.lines) {
      const std::string type = line.at("type");
      if (type != "hello" && type != "next") types.push_back(type);
    }
    return types;
  }

  std::string root;
  ScriptedVmm vmm;
};

TEST_F(SessionTest, HelloSaysWhatTheGuestIs) {
  serve({});
  const Json hello = only("hello");
  EXPECT_EQ(hello["agent"], 1);
  EXPECT_EQ(hello["cpus"], 2);
  EXPECT_EQ(hello["hres_active"], true);
  EXPECT_EQ(hello["clock_event"], "lapic-deadline");
  EXPECT_EQ(hello["clocksource"], "kvm-clock");
  EXPECT_EQ(hello["idle_driver"], "none");
  EXPECT_TRUE(hello["idle_governor"].is_null());
  EXPECT_EQ(hello["preempt_rt"], true);
  EXPECT_EQ(hello["knobs"], Json::array({"idle_spin"}));
}

TEST_F(SessionTest, ConfigureAnswersWhatItReadsBack) {
  serve({R"({"cmd":"configure","idle_spin_us":50})"});
  EXPECT_EQ(only("configured"), Json::parse(R"({"type":"configured","idle_spin_us":50})"));
}

TEST_F(SessionTest, ConfigureWithoutTheKnobIsAnError) {
  std::filesystem::remove_all(root + "/sys/kernel/sched");
  serve({R"({"cmd":"configure","idle_spin_us":50})"});
  EXPECT_EQ(only("error")["code"], "no-knob");
  EXPECT_TRUE(vmm.of_type("configured").empty());
}

TEST_F(SessionTest, ConfigureThatCannotBeWrittenIsAnError) {
  std::filesystem::remove(root + "/sys/kernel/sched/idle_spin");
  std::filesystem::create_directory(root + "/sys/kernel/sched/idle_spin");
  serve({R"({"cmd":"configure","idle_spin_us":50})"});
  EXPECT_EQ(only("error")["code"], "io");
}

TEST_F(SessionTest, ConfigureThatTheKernelRefusesIsABadValueAndChangesNothing) {
  // A knob of the real kernel stands in: like idle_spin it takes a number within limits, else EINVAL.
  std::filesystem::remove(root + "/sys/kernel/sched/idle_spin");
  std::filesystem::create_symlink("/proc/self/oom_score_adj", root + "/sys/kernel/sched/idle_spin");
  const std::string before = Files().read_line("/proc/self/oom_score_adj").value_or("");
  serve({R"({"cmd":"configure","idle_spin_us":1000001})", R"({"cmd":"configure","idle_spin_us":"abc"})"});
  const auto errors = vmm.of_type("error");
  ASSERT_EQ(errors.size(), 2U);
  for (const Json& error : errors) EXPECT_EQ(error["code"], "bad-value") << error.dump();
  EXPECT_TRUE(vmm.of_type("configured").empty());
  EXPECT_EQ(Files().read_line("/proc/self/oom_score_adj"), before);
}

TEST_F(SessionTest, BadCommandsAreErrorsAndTheNextOneIsDone) {
  serve({"{", R"({"cmd":"dance"})", R"({"trial":1})", R"([])", R"({"cmd":"configure","colour":1})",
         R"({"cmd":"configure","idle_spin_us":7})"});
  const auto errors = vmm.of_type("error");
  ASSERT_EQ(errors.size(), 5U);
  for (const Json& error : errors) EXPECT_EQ(error["code"], "bad-command") << error.dump();
  EXPECT_EQ(only("configured")["idle_spin_us"], 7);
}

TEST_F(SessionTest, ARunIsMarkedAtBothEndsAndReportsTheWorkloadsResult) {
  put_workload("good", R"(test "$1" = --n=3 || exit 9
echo ready; read line; test "$line" = go || exit 8; echo 'done {"seconds":1.5,"operations":3,"latency_us":null,"type":"x"}')");
  serve({R"({"cmd":"run","trial":7,"workload":"good","args":{"n":"3"}})"});
  EXPECT_EQ(steps(), (std::vector<std::string>{"mark", "mark-ok", "mark", "mark-ok", "result"}));
  const Json begin = vmm.of_type("mark").front();
  EXPECT_EQ(begin["name"], "begin");
  EXPECT_EQ(begin["trial"], 7);
  EXPECT_EQ(begin["attempt"], 1);
  EXPECT_LT(begin.dump().size(), 80U) << "every four bytes are an exit within the mark's own time";
  const Json cpu0 = vmm.of_type("mark-ok").front()["guest"]["vcpus"][0];
  EXPECT_EQ(cpu0["id"], 0);
  EXPECT_EQ(cpu0["ipi_call_function_all"], 100);
  EXPECT_EQ(cpu0["ipi_reschedule"], 13);
  EXPECT_EQ(cpu0["timer_interrupts"], 1000);
  EXPECT_EQ(cpu0["spin_hits_remote"], 5);
  EXPECT_EQ(cpu0["spin_hits_local"], 2);
  EXPECT_EQ(cpu0["spin_misses"], 1);
  EXPECT_EQ(cpu0["spin_ns"], 93);
  EXPECT_EQ(cpu0["idle_gap_ns_log2"], Json::array({0, 4}));
  EXPECT_TRUE(cpu0["tlb_flushes"].is_null());
  EXPECT_EQ(vmm.of_type("mark").back()["name"], "end");
  EXPECT_EQ(
      only("result"),
      Json::parse(
          R"({"type":"result","trial":7,"workload":"good","status":0,"seconds":1.5,"operations":3,"latency_us":null})"));
}

TEST_F(SessionTest, WithoutSpinStatisticsTheyAreNull) {
  std::filesystem::remove_all(root + "/sys/kernel/debug");
  put_workload("good", R"(echo ready; read line; echo 'done {"seconds":1,"operations":0}')");
  serve({R"({"cmd":"run","trial":1,"workload":"good"})"});
  const Json cpu1 = vmm.of_type("mark-ok").front()["guest"]["vcpus"][1];
  for (const char* name : {"spin_hits_remote", "spin_hits_local", "spin_misses", "spin_ns", "idle_gap_ns_log2"}) {
    EXPECT_TRUE(cpu1.at(name).is_null()) << name;
  }
}

TEST_F(SessionTest, AMarkIsSentAgainWhileIpisArriveOrTheVmmAsks) {
  put_workload("good", R"(echo ready; read line; echo 'done {"seconds":1,"operations":0}')");
  int marks = 0;
  vmm.on_mark = [&](const Json& mark) -> std::string {
    ++marks;
    if (mark["name"] == "begin" && mark["attempt"] == 1) put("/proc/interrupts", interrupts(101));
    return mark["name"] == "begin" && mark["attempt"] == 2 ? R"({"mark":"retry"})" : R"({"mark":"ok"})";
  };
  serve({R"({"cmd":"run","trial":1,"workload":"good"})"});
  EXPECT_EQ(marks, 4);
  const auto sent = vmm.of_type("mark");
  EXPECT_EQ(sent[1]["attempt"], 2);
  EXPECT_EQ(sent[2]["attempt"], 3);
  const auto confirmed = vmm.of_type("mark-ok");
  ASSERT_EQ(confirmed.size(), 2U);
  EXPECT_EQ(confirmed[0]["guest"]["vcpus"][0]["ipi_call_function_all"], 101);
  EXPECT_EQ(only("result")["status"], 0);
}

// Threads of this process that may run on one CPU only: those that keep the other CPUs busy, and the caller.
std::size_t pinned_threads() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Cpus_allowed_list:") && line.find_first_of("-,") == std::string::npos) ++count;
    }
  }
  return count;
}

TEST_F(SessionTest, AMarkThatIpisKeepDisturbingIsTakenWithAllCpusBusy) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "needs two CPUs";
  // ThreadSanitizer starts a thread of its own with a program's first one, which would inherit its CPU.
  std::thread([] {}).join();
  put_workload("good", R"(echo ready; read line; echo 'done {"seconds":1,"operations":0}')");
  std::vector<std::size_t> pinned;
  vmm.on_mark = [&](const Json& mark) -> std::string {
    if (mark["name"] == "begin") {
      pinned.push_back(pinned_threads());
      if (mark["attempt"] < 12) put("/proc/interrupts", interrupts(100 + mark["attempt"].get<int>()));
    }
    return R"({"mark":"ok"})";
  };
  serve({R"({"cmd":"run","trial":1,"workload":"good"})"});
  ASSERT_EQ(pinned.size(), 12U);
  EXPECT_EQ(pinned[9], pinned[0]) << "the first ten attempts leave the other CPUs alone";
  EXPECT_GE(pinned[10], pinned[0] + 2);
  EXPECT_EQ(pinned_threads(), pinned[0]) << "afterwards all is as before";
  EXPECT_EQ(only("result")["status"], 0);
}

TEST_F(SessionTest, AMarkThatNeverSettlesIsAnErrorAndTheWorkloadIsStopped) {
  put_workload("good", "echo ready; read line; echo started > " + root + "/started");
  vmm.on_mark = [](const Json&) { return R"({"mark":"retry"})"; };
  serve({R"({"cmd":"run","trial":1,"workload":"good"})"});
  EXPECT_EQ(vmm.of_type("mark").size(), 50U);
  EXPECT_EQ(only("error")["code"], "mark");
  EXPECT_TRUE(vmm.of_type("result").empty());
  EXPECT_FALSE(std::filesystem::exists(root + "/started"));
}

TEST_F(SessionTest, WithoutHighResolutionTimersNothingIsMeasured) {
  put("/proc/timer_list", timer_list("0"));
  put_workload("good", "touch " + root + "/ran");
  serve({R"({"cmd":"run","trial":1,"workload":"good"})"});
  EXPECT_EQ(only("hello")["hres_active"], false);
  EXPECT_EQ(only("error")["code"], "no-hres");
  EXPECT_TRUE(vmm.of_type("mark").empty());
  EXPECT_FALSE(std::filesystem::exists(root + "/ran"));
}

struct Failing {
  const char* name;
  const char* script;
  int status;
  std::size_t marks;
};
void PrintTo(const Failing& failing, std::ostream* out) {
  *out << failing.name;
}
class FailingWorkload : public SessionTest, public testing::WithParamInterface<Failing> {};
TEST_P(FailingWorkload, GivesAResultWithItsStatus) {
  put_workload("bad", GetParam().script);
  serve({R"({"cmd":"run","trial":3,"workload":"bad"})"});
  const Json result = only("result");
  EXPECT_EQ(result["status"], GetParam().status) << result.dump();
  EXPECT_TRUE(result["operations"].is_null());
  EXPECT_FALSE(result["what"].get<std::string>().empty());
  EXPECT_EQ(vmm.of_type("mark").size(), GetParam().marks);
}
INSTANTIATE_TEST_SUITE_P(
    All, FailingWorkload,
    testing::Values(Failing{"dies_before_ready", "exit 3", 3, 0},
                    Failing{"says_something_else", "echo hello; sleep 20", 128 + SIGKILL, 0},
                    Failing{"dies_in_the_run", "echo ready; read line; exit 4", 4, 2},
                    Failing{"is_killed", "echo ready; read line; kill -SEGV $$", 139, 2},
                    Failing{"ends_well_without_result", "echo ready; read line; exit 0", 1, 2},
                    Failing{"fails_after_its_result", "echo ready; read line; echo 'done {}'; exit 5", 5, 2},
                    Failing{"writes_no_json", "echo ready; read line; echo 'done seconds=1'", 1, 2}),
    [](const auto& test) { return test.param.name; });

TEST_F(SessionTest, OnlyPlainNamesOfExistingWorkloads) {
  put("/bin/data", "not executable");
  serve({R"({"cmd":"run","trial":1,"workload":"none"})", R"({"cmd":"run","trial":1,"workload":"data"})",
         R"({"cmd":"run","trial":1,"workload":"../bin/data"})", R"({"cmd":"run","trial":1,"workload":""})",
         R"({"cmd":"run","trial":1,"workload":".."})", R"({"cmd":"run","trial":1})"});
  const auto errors = vmm.of_type("error");
  ASSERT_EQ(errors.size(), 6U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(errors[i]["code"], "no-workload") << i;
  EXPECT_EQ(errors[5]["code"], "bad-command");
}

TEST_F(SessionTest, ExecGivesOutputAndStatus) {
  serve({R"({"cmd":"exec","argv":["/bin/sh","-c","echo one; printf two; exit 6"]})",
         R"({"cmd":"exec","argv":["/bin/sh","-c","sleep 20"],"timeout_ms":50})",
         R"({"cmd":"exec","argv":["/nowhere"]})"});
  const auto results = vmm.of_type("exec");
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0]["status"], 6);
  EXPECT_EQ(results[0]["output"], "one\ntwo");
  EXPECT_EQ(results[1]["timed_out"], true);
  EXPECT_TRUE(results[1]["status"].is_null());
  EXPECT_EQ(only("error")["code"], "agent");
}

}  // namespace
