// SPDX-License-Identifier: Apache-2.0
#include "experiment/native_workload.hpp"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>

namespace vmm::experiment {
namespace {

using namespace std::chrono_literals;

// A shell script in the place of a workload.
class NativeWorkload : public testing::Test {
 protected:
  NativeWorkload() : program_(testing::TempDir() + "workload-" + std::to_string(::getpid())) {}
  ~NativeWorkload() override { std::filesystem::remove(program_); }

  const std::filesystem::path& script(const std::string& body) {
    std::ofstream(program_) << "#!/bin/sh\n" << body;
    std::filesystem::permissions(program_, std::filesystem::perms::owner_all);
    return program_;
  }

  std::filesystem::path program_;
};

TEST_F(NativeWorkload, GivesItsResult) {
  const NativeResult result = run_native(script("echo ready; read go; echo 'done {\"seconds\": 2}'\n"), {}, 10s);
  EXPECT_EQ(result.status, 0) << result.problem;
  EXPECT_EQ(result.result["seconds"], 2);
}

TEST_F(NativeWorkload, EndsAtOnceWhenAnotherThreadCancelsIt) {
  std::atomic<bool> cancelled = false;
  std::jthread later([&] {
    std::this_thread::sleep_for(200ms);
    cancelled = true;
  });
  const auto start = std::chrono::steady_clock::now();
  const NativeResult result = run_native(script("echo ready; read go; exec sleep 60\n"), {}, 60s, &cancelled);
  EXPECT_EQ(result.status, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
}

TEST_F(NativeWorkload, ThatDoesNotEndIsKilled) {
  const NativeResult result = run_native(script("echo ready; read go; exec sleep 60\n"), {}, 300ms);
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.problem.find("did not end in time"), std::string::npos) << result.problem;
}

}  // namespace
}  // namespace vmm::experiment
