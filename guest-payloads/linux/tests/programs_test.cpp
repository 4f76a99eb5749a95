// SPDX-License-Identifier: Apache-2.0
// The programs themselves, as built: workloads by their line protocol, make-initrd by what it writes.
// GUEST_BIN and MAKE_INITRD come from CTest.

#include <archive.h>
#include <archive_entry.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <thread>

#include "agent/child.hpp"

namespace {

using guest::Child;
using Json = nlohmann::json;
using std::chrono::seconds;

std::string from_environment(const char* name) {
  const char* value = getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set: run this by ctest");
  return value;
}

std::string workload(const std::string& name) {
  return from_environment("GUEST_BIN") + "/" + name;
}

// The result of a run, or nothing when the protocol was not followed.
Json run_workload(const std::vector<std::string>& arguments) {
  Child child(arguments);
  std::string line;
  if (child.read_line(line, seconds(20)) != Child::Read::kLine || line != "ready") return "no ready: " + line;
  child.write_line("go");
  if (child.read_line(line, seconds(60)) != Child::Read::kLine || !line.starts_with("done ")) return "no done: " + line;
  if (child.wait(seconds(10)) != 0) return "status is not 0";
  return Json::parse(line.substr(5));
}

int status_of(const std::vector<std::string>& arguments) {
  Child child(arguments);
  child.close_stdin();
  return child.wait(seconds(20)).value_or(-1);
}

TEST(Hackbench, RunsTheRealOneAndCountsItsMessages) {
  const Json result = run_workload({workload("hackbench"), "--groups=1", "--fds=2", "--loops=3000", "--pipe=1"});
  ASSERT_TRUE(result.is_object()) << result;
  EXPECT_EQ(result["operations"], 1 * 2 * 2 * 3000);
  EXPECT_TRUE(run_workload({workload("hackbench"), "--loops=1000"}).is_object()) << "by sockets";
  EXPECT_GT(result["seconds"], 0.0);
  EXPECT_TRUE(result["latency_us"].is_null());
  EXPECT_EQ(status_of({workload("hackbench"), "--groups=0"}), 2);
  EXPECT_EQ(status_of({workload("hackbench")}), 1) << "stdin ended before go";
}

TEST(PerfSchedPipe, RunsTheRealOneWhereItIs) {
  if (!std::filesystem::exists("/usr/bin/perf")) GTEST_SKIP() << "no /usr/bin/perf (linux-perf)";
  const Json result = run_workload({workload("perf-sched-pipe"), "--loops=300"});
  ASSERT_TRUE(result.is_object()) << result;
  EXPECT_EQ(result["operations"], 300);
  EXPECT_GT(result["seconds"], 0.0);
  EXPECT_LT(result["seconds"], 30.0);
}

TEST(WakePingpong, CountsEveryRoundTrip) {
  for (const char* name : {"pipe-pingpong", "futex-wake"}) {
    const Json result = run_workload({workload(name), "--iterations=250"});
    ASSERT_TRUE(result.is_object()) << name << result;
    EXPECT_EQ(result["operations"], 250) << name;
    EXPECT_EQ(result["latency_us"]["count"], 250) << name;
    EXPECT_GT(result["seconds"], 0.0) << name;
    EXPECT_EQ(status_of({workload(name), "--iterations=0"}), 2) << name;
    EXPECT_EQ(status_of({workload(name)}), 1) << name << ": stdin ended before go";
  }
}

TEST(WakePingpong, TheOthersThinkTimeIsInTheRoundTrip) {
  for (const char* name : {"pipe-pingpong", "futex-wake"}) {
    const Json result = run_workload({workload(name), "--iterations=30", "--think-us=2000"});
    ASSERT_TRUE(result.is_object()) << name << result;
    EXPECT_GE(result["latency_us"]["min"], 2000.0) << name;
    EXPECT_GE(result["seconds"], 0.12) << name << ": both think";
  }
}

TEST(RequestReply, AnswersEveryRequestFromTheTimeItWasDue) {
  const Json result = run_workload({workload("request-reply"), "--requests=200", "--rate=2000", "--service-us=100"});
  ASSERT_TRUE(result.is_object()) << result;
  EXPECT_EQ(result["operations"], 200);
  EXPECT_EQ(result["latency_us"]["count"], 200);
  EXPECT_GE(result["latency_us"]["min"], 100.0) << "the work itself";
  EXPECT_EQ(status_of({workload("request-reply"), "--rate=0"}), 2);
}

// A service slower than its requests: an open loop's latency grows with the queue, a closed loop would hide it.
TEST(RequestReply, OverloadShowsAsLatencyNotAsFewerRequests) {
  const Json result = run_workload({workload("request-reply"), "--requests=100", "--rate=10000", "--service-us=2000"});
  ASSERT_TRUE(result.is_object()) << result;
  EXPECT_EQ(result["operations"], 100);
  EXPECT_GE(result["latency_us"]["max"], 150'000.0) << "100 x 2 ms of work, all due within about 10 ms";
}

TEST(Neighbour, WorksUntilItsInputEnds) {
  Child child({workload("neighbour"), "--cpus=0"});
  std::string line;
  ASSERT_EQ(child.read_line(line, seconds(20)), Child::Read::kLine);
  EXPECT_EQ(line, "ready");
  child.write_line("go");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  child.close_stdin();
  ASSERT_EQ(child.read_line(line, seconds(20)), Child::Read::kLine);
  ASSERT_TRUE(line.starts_with("done ")) << line;
  const Json result = Json::parse(line.substr(5));
  EXPECT_GT(result["operations"], 0);
  EXPECT_GT(result["seconds"], 0.1) << "it starts some time after it is told to";
  EXPECT_EQ(child.wait(seconds(10)), 0);
}

TEST(TcpPingpong, CountsEveryRoundTrip) {
  const Json result = run_workload({workload("tcp-pingpong"), "--iterations=250"});
  ASSERT_TRUE(result.is_object()) << result;
  EXPECT_EQ(result["operations"], 250);
  EXPECT_EQ(result["messages"], 500);
  EXPECT_EQ(result["message_bytes"], 23);
  EXPECT_EQ(result["latency_us"]["count"], 250);
  EXPECT_TRUE(result["latency_us"]["p50"].is_number());
  EXPECT_TRUE(result["latency_us"]["p99"].is_null());
  EXPECT_EQ(result["tcp_nodelay"], false);
  // 250 times 20 us and 249 times 200 us of sleep at least; the last one of the server is not waited for.
  EXPECT_GE(result["seconds"].get<double>(), 250 * 20e-6 + 249 * 200e-6);
  EXPECT_GE(result["latency_us"]["min"].get<double>(), 20.0);
}

TEST(TcpPingpong, SleepsAreWhatTheOptionsSay) {
  const Json result =
      run_workload({workload("tcp-pingpong"), "--iterations=20", "--client-sleep-us=3000", "--server-sleep-us=0"});
  ASSERT_TRUE(result.is_object()) << result;
  EXPECT_GE(result["seconds"].get<double>(), 0.06);
  EXPECT_GE(result["latency_us"]["min"].get<double>(), 3000.0);
  EXPECT_EQ(result["server_sleep_us"], 0);
}

TEST(TcpPingpong, PinsBothSides) {
  const Json result = run_workload({workload("tcp-pingpong"), "--iterations=20", "--pin-client=0", "--pin-server=0"});
  ASSERT_TRUE(result.is_object()) << result;
  EXPECT_EQ(result["operations"], 20);
}

TEST(TcpPingpong, BadOptionsAreStatus2) {
  for (const char* bad : {"--iterations=0", "--iterations=x", "--port=65536", "--pin-client=3-1", "--colour=1", "go"}) {
    EXPECT_EQ(status_of({workload("tcp-pingpong"), bad}), 2) << bad;
  }
}

TEST(TcpPingpong, WithoutGoItFails) {
  EXPECT_EQ(status_of({workload("tcp-pingpong")}), 1);
}

TEST(Idle, LastsAsLongAsAskedAndDoesNothing) {
  const Json result = run_workload({workload("idle"), "--seconds=1"});
  ASSERT_TRUE(result.is_object()) << result;
  EXPECT_EQ(result["operations"], 0);
  EXPECT_TRUE(result["latency_us"].is_null());
  EXPECT_GE(result["seconds"].get<double>(), 1.0);
}

TEST(Agent, RefusesToRunAsAnOrdinaryProgram) {
  EXPECT_EQ(status_of({workload("agent")}), 2);
}

class MakeInitrd : public testing::Test {
 protected:
  MakeInitrd() {
    std::string pattern = testing::TempDir() + "initrd-XXXXXX";
    directory = mkdtemp(pattern.data());
    std::ofstream(directory + "/a") << "content of a";
    std::ofstream(directory + "/b") << "b";
  }
  ~MakeInitrd() override { std::filesystem::remove_all(directory); }
  int make(const std::string& output, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {from_environment("MAKE_INITRD"), directory + "/" + output});
    return status_of(arguments);
  }
  std::string bytes(const std::string& name) const {
    std::ifstream file(directory + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  struct Entry {
    mode_t mode;
    dev_t device;
    std::string content;
  };
  std::map<std::string, Entry> list(const std::string& name) const {
    std::map<std::string, Entry> entries;
    archive* reader = archive_read_new();
    archive_read_support_filter_all(reader);
    archive_read_support_format_cpio(reader);
    EXPECT_EQ(archive_read_open_filename(reader, (directory + "/" + name).c_str(), 10240), ARCHIVE_OK);
    archive_entry* entry = nullptr;
    while (archive_read_next_header(reader, &entry) == ARCHIVE_OK) {
      EXPECT_EQ(archive_entry_mtime(entry), 0);
      EXPECT_EQ(archive_entry_uid(entry), 0);
      std::string content(static_cast<std::size_t>(archive_entry_size(entry)), '\0');
      archive_read_data(reader, content.data(), content.size());
      entries[archive_entry_pathname(entry)] = {archive_entry_mode(entry), archive_entry_rdev(entry), content};
    }
    archive_read_free(reader);
    return entries;
  }

  std::string directory;
};

TEST_F(MakeInitrd, HoldsTheFilesTheMountPointsAndTheConsole) {
  ASSERT_EQ(make("out", {"init=" + directory + "/a", "/bin/deep/b=" + directory + "/b"}), 0);
  const auto entries = list("out");
  ASSERT_TRUE(entries.contains("init"));
  EXPECT_EQ(entries.at("init").content, "content of a");
  EXPECT_EQ(entries.at("init").mode, static_cast<mode_t>(S_IFREG | 0755));
  EXPECT_EQ(entries.at("bin/deep/b").content, "b");
  for (const char* name : {"dev", "proc", "sys", "tmp", "bin", "bin/deep"}) {
    ASSERT_TRUE(entries.contains(name)) << name;
    EXPECT_EQ(entries.at(name).mode, static_cast<mode_t>(S_IFDIR | 0755)) << name;
  }
  EXPECT_EQ(entries.at("dev/console").mode, static_cast<mode_t>(S_IFCHR | 0600));
  EXPECT_EQ(entries.at("dev/console").device, makedev(5, 1));
}

TEST_F(MakeInitrd, TheSameInputGivesTheSameBytesInAnyOrder) {
  const std::string a = "init=" + directory + "/a";
  const std::string b = "bin/b=" + directory + "/b";
  ASSERT_EQ(make("one", {a, b}), 0);
  std::filesystem::last_write_time(directory + "/a", std::filesystem::file_time_type::clock::now());
  ASSERT_EQ(make("two", {b, a}), 0);
  EXPECT_EQ(bytes("one"), bytes("two"));
  ASSERT_EQ(make("three", {"--gzip", a, b}), 0);
  ASSERT_EQ(make("four", {a, "--gzip", b}), 0);
  EXPECT_EQ(bytes("three"), bytes("four"));
  EXPECT_EQ(bytes("three").substr(0, 2), "\x1f\x8b");
  EXPECT_EQ(list("three").at("init").content, "content of a");
}

TEST_F(MakeInitrd, BadUseIsStatus2AndLeavesNothing) {
  const std::string a = "=" + directory + "/a";
  EXPECT_EQ(make("out", {}), 2);
  EXPECT_EQ(make("out", {"init"}), 2);
  EXPECT_EQ(make("out", {"init=" + directory + "/none"}), 2);
  EXPECT_EQ(make("out", {"init=" + directory}), 2);
  EXPECT_EQ(make("out", {a}), 2);
  EXPECT_EQ(make("out", {"../x" + a}), 2);
  EXPECT_EQ(make("out", {"x" + a, "x" + a}), 2);
  EXPECT_EQ(make("none/out", {"init" + a}), 2);
  EXPECT_FALSE(std::filesystem::exists(directory + "/out"));
  EXPECT_FALSE(std::filesystem::exists(directory + "/out.tmp"));
}

}  // namespace
