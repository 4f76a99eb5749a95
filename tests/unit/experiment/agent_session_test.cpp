// SPDX-License-Identifier: Apache-2.0
#include "experiment/agent_session.hpp"

#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace vmm::experiment {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class SessionTest : public ::testing::Test {
 protected:
  // Each mark sees counters that grow by 10.
  std::optional<std::vector<stats::VcpuSnapshot>> marks() {
    if (busy_ > 0) {
      --busy_;
      return std::nullopt;
    }
    stats::VcpuSnapshot snapshot;
    snapshot.counters["hlt_exits"] = stats::Value::count(10 * ++taken_, stats::Source::kKvmStats);
    return std::vector{snapshot};
  }
  json say(const json& message) {
    const std::string reply = session_.on_line(message.dump(), true);
    return reply.empty() ? json() : json::parse(reply);
  }
  void hello() { say({{"type", "hello"}, {"agent", 1}}); }
  // Starts a trial and hands the command to the "guest".
  std::future<std::optional<AgentSession::Trial>> run() {
    auto future =
        std::async(std::launch::async, [this] { return session_.run("tcp-pingpong", {{"iterations", "5"}}); });
    json command;
    do {
      command = say({{"type", "next"}});
    } while (command["cmd"] == "wait");
    EXPECT_EQ(command["cmd"], "run");
    trial_ = command["trial"];
    return future;
  }
  json mark(const char* name) { return say({{"type", "mark"}, {"trial", trial_}, {"name", name}, {"attempt", 1}}); }
  void mark_ok(const char* name) {
    say({{"type", "mark-ok"}, {"trial", trial_}, {"name", name}, {"guest", json::object()}});
  }
  int busy_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t trial_ = 0;
  AgentSession session_{AgentSession::Speaker::kAgent, [this] { return marks(); }};
};

TEST_F(SessionTest, ATrialIsTheDifferenceOfItsLastMarks) {
  hello();
  auto future = run();
  busy_ = 1;
  EXPECT_EQ(mark("begin")["mark"], "retry");
  EXPECT_EQ(mark("begin")["mark"], "ok");
  EXPECT_EQ(mark("begin")["mark"], "ok") << "the agent saw its own counters move: it marks again";
  mark_ok("begin");
  EXPECT_EQ(mark("end")["mark"], "ok");
  mark_ok("end");
  say({{"type", "result"},
       {"trial", trial_},
       {"workload", "tcp-pingpong"},
       {"status", 0},
       {"seconds", 1.5},
       {"operations", 5}});
  const auto trial = future.get();
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->status, 0);
  EXPECT_EQ(trial->result.begin_attempts, 3U);
  EXPECT_EQ(trial->result.vcpus.at(0).counter("hlt_exits").integer(), 10U) << "30 - 20: the last begin mark counts";
  EXPECT_EQ(trial->result.workload.seconds.real(), 1.5);
  EXPECT_EQ(trial->result.workload.operations.integer(), 5U);
}

TEST_F(SessionTest, AnEndMarkNeedsAConfirmedBeginMark) {
  hello();
  auto future = run();
  mark("begin");
  mark("end");
  EXPECT_THAT(session_.violation().value_or(""), HasSubstr("out of order"));
  EXPECT_FALSE(future.get());
}

TEST_F(SessionTest, ASuccessNeedsAConfirmedEndMark) {
  hello();
  auto future = run();
  mark("begin");
  mark_ok("begin");
  mark("end");
  say({{"type", "result"}, {"trial", trial_}, {"status", 0}, {"seconds", 1.0}});
  EXPECT_THAT(session_.violation().value_or(""), HasSubstr("without both marks"));
  EXPECT_FALSE(future.get());
}

TEST_F(SessionTest, AFailedWorkloadIsAResult) {
  hello();
  auto future = run();
  say({{"type", "result"}, {"trial", trial_}, {"workload", "tcp-pingpong"}, {"status", 7}});
  const auto trial = future.get();
  ASSERT_TRUE(trial);
  EXPECT_EQ(trial->status, 7);
  EXPECT_FALSE(trial->result.workload.seconds.known()) << "unknown is null, not 0";
}

TEST_F(SessionTest, ANonsenseTimeIsNull) {
  hello();
  auto future = run();
  mark("begin");
  mark_ok("begin");
  mark("end");
  mark_ok("end");
  say({{"type", "result"}, {"trial", trial_}, {"status", 0}, {"seconds", -3.0}, {"operations", "many"}});
  const auto trial = future.get();
  ASSERT_TRUE(trial);
  EXPECT_FALSE(trial->result.workload.seconds.known());
  EXPECT_FALSE(trial->result.workload.operations.known());
}

// Each lie ends the session with a diagnosis.
struct Lie {
  const char* name;
  std::vector<std::string> lines;
  const char* diagnosis;
};
class Lies : public SessionTest, public ::testing::WithParamInterface<Lie> {};

TEST_P(Lies, EndTheSession) {
  for (const std::string& line : GetParam().lines) session_.on_line(line, true);
  ASSERT_TRUE(session_.violation()) << GetParam().name;
  EXPECT_THAT(*session_.violation(), HasSubstr(GetParam().diagnosis));
  EXPECT_EQ(session_.on_line(R"({"type":"next"})", true), "") << "nothing more is answered";
}

INSTANTIATE_TEST_SUITE_P(
    All, Lies,
    ::testing::Values(
        Lie{"no json", {"hello"}, "not a JSON object"}, Lie{"array", {"[1]"}, "not a JSON object"},
        Lie{"deep", {std::string(60000, '[')}, "nests deeper"}, Lie{"control bytes", {"\x1b[2J\x01"}, "?[2J?"},
        Lie{"unknown", {R"({"type":"reboot"})"}, "unknown message"},
        Lie{"no type", {R"({"typ":1})"}, "unknown message"}, Lie{"early", {R"({"type":"next"})"}, "before its hello"},
        Lie{"twice", {R"({"type":"hello"})", R"({"type":"hello"})"}, "twice"},
        Lie{"mark", {R"({"type":"hello"})", R"({"type":"mark","trial":1,"name":"begin"})"}, "out of order"},
        Lie{"mark-ok", {R"({"type":"mark-ok","trial":0,"name":"begin"})"}, "not taken"},
        Lie{"result", {R"({"type":"result","trial":1,"status":0})"}, "belongs to no trial"},
        Lie{"status", {R"({"type":"result","trial":0,"status":"good"})"}, "without a status"}),
    [](const auto& lie) {
      std::string name = lie.param.name;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name;
    });

TEST_F(SessionTest, MarksInTheWrongOrder) {
  hello();
  auto future = run();
  mark("end");
  EXPECT_THAT(session_.violation().value_or(""), HasSubstr("out of order"));
  EXPECT_FALSE(future.get());
}

TEST_F(SessionTest, ABeginAfterTheEnd) {
  hello();
  auto future = run();
  mark("begin");
  mark_ok("begin");
  mark("end");
  EXPECT_FALSE(session_.violation()) << "so far all is in order";
  mark("begin");
  EXPECT_THAT(session_.violation().value_or(""), HasSubstr("out of order"));
  EXPECT_FALSE(future.get());
}

TEST_F(SessionTest, SuccessWithoutMarks) {
  hello();
  auto future = run();
  say({{"type", "result"}, {"trial", trial_}, {"status", 0}, {"seconds", 0.1}});
  EXPECT_THAT(session_.violation().value_or(""), HasSubstr("without both marks"));
  EXPECT_FALSE(future.get());
}

TEST_F(SessionTest, AGuestThatNeverRests) {
  hello();
  auto future = run();
  for (int i = 0; i < 100; ++i) mark("begin");
  EXPECT_THAT(session_.violation().value_or(""), HasSubstr("never comes to rest"));
  EXPECT_FALSE(future.get());
}

TEST_F(SessionTest, AFloodOfAnswersIsBounded) {
  hello();
  for (int i = 0; i < 100; ++i) say({{"type", "configured"}});
  EXPECT_THAT(session_.violation().value_or(""), HasSubstr("floods"));
}

TEST_F(SessionTest, ALineOfBracketsEndsTheSession) {
  hello();
  session_.on_line(R"({"type":"result","x":)" + std::string(32'000, '[') + std::string(32'000, ']') + "}", true);
  EXPECT_THAT(session_.violation().value_or(""), HasSubstr("nests deeper"));
}

TEST_F(SessionTest, BracketsInAStringAreText) {
  hello();
  session_.on_line(R"({"type":"log","text":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"[["})", true);
  EXPECT_FALSE(session_.violation());
}

TEST_F(SessionTest, ALineThatIsTooLong) {
  session_.on_line("x", false);
  EXPECT_THAT(session_.violation().value_or(""), HasSubstr("64 KiB"));
}

TEST_F(SessionTest, AMissingKnobIsTheHostUnableError) {
  hello();
  auto future = std::async(std::launch::async, [this] { return session_.configure({{"idle_spin_us", 50}}); });
  while (say({{"type", "next"}})["cmd"] == "wait") {
  }
  say({{"type", "error"}, {"code", "no-knob"}, {"what", "idle_spin"}});
  EXPECT_THROW((void)future.get(), base::HostUnable);
}

TEST_F(SessionTest, AValueThatReadsBackDifferentlyIsTheHostUnableError) {
  hello();
  for (const json& answer : {json{{"type", "configured"}, {"idle_spin_us", 49}}, json{{"type", "configured"}}}) {
    auto future = std::async(std::launch::async, [this] { return session_.configure({{"idle_spin_us", 50}}); });
    while (say({{"type", "next"}})["cmd"] == "wait") {
    }
    say(answer);
    EXPECT_THROW((void)future.get(), base::HostUnable) << answer.dump();
  }
}

TEST_F(SessionTest, CloseEndsEveryWait) {
  auto future = std::async(std::launch::async, [this] { return session_.wait_for_hello(); });
  session_.close();
  EXPECT_FALSE(future.get());
}

}  // namespace
}  // namespace vmm::experiment
