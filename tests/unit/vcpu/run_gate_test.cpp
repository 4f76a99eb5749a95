// SPDX-License-Identifier: Apache-2.0
#include "vcpu/run_gate.hpp"

#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace vmm::vcpu {
namespace {

// Threads that behave as vCPUs: inside until their immediate_exit byte is set.
class GateTest : public ::testing::Test {
 protected:
  static constexpr unsigned kVcpus = 4;
  void start() {
    for (unsigned id = 0; id < kVcpus; ++id) {
      threads_.emplace_back([this, id] {
        while (gate_.enter(id, immediate_exit_[id].value)) {
          while (std::atomic_ref(immediate_exit_[id].value).load() == 0) std::this_thread::yield();
          inside_changes_.fetch_add(1);
          gate_.leave(id);
        }
        ended_.fetch_add(1);
      });
    }
  }
  void TearDown() override {
    gate_.stop();
    for (auto& thread : threads_) thread.join();
    EXPECT_EQ(ended_.load(), threads_.size());
  }
  struct alignas(64) Byte {
    std::uint8_t value = 0;
  };
  std::array<Byte, kVcpus> immediate_exit_{};
  RunGate gate_{kVcpus, [this](unsigned id) { std::atomic_ref(immediate_exit_[id].value).store(1); }};
  std::vector<std::thread> threads_;
  std::atomic<unsigned> ended_{0};
  std::atomic<unsigned> inside_changes_{0};
};

TEST_F(GateTest, NobodyRunsDuringAPause) {
  start();
  for (int round = 0; round < 200; ++round) {
    gate_.pause();
    const unsigned before = inside_changes_.load();
    std::this_thread::yield();
    EXPECT_EQ(inside_changes_.load(), before) << "a vCPU came out during the pause: it had been inside";
    gate_.resume();
  }
}

TEST_F(GateTest, TwoPausesAtOnceNest) {
  start();
  std::vector<std::thread> pausers;
  for (int i = 0; i < 2; ++i) {
    pausers.emplace_back([this] {
      for (int round = 0; round < 200; ++round) {
        const Pause pause(gate_);
      }
    });
  }
  for (auto& thread : pausers) thread.join();
}

TEST_F(GateTest, StopBeforeAnyoneEnters) {
  gate_.request_stop();
  start();
}

TEST_F(GateTest, StopEndsAPauseToo) {
  start();
  gate_.pause();
  gate_.request_stop();
  gate_.resume();
}

}  // namespace
}  // namespace vmm::vcpu
