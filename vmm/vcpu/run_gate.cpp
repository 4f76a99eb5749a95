// SPDX-License-Identifier: Apache-2.0
#include "vcpu/run_gate.hpp"

#include <chrono>

namespace vmm::vcpu {
namespace {

// A kick can be swallowed only by a thread that is not in KVM_RUN yet (its request check comes later) or blocked in a
// write of the console: a repeat costs nothing and makes the wait finite.
constexpr std::chrono::milliseconds kKickPeriod{2};

}  // namespace

RunGate::RunGate(unsigned vcpus, std::function<void(unsigned)> kick)
    : vcpus_(vcpus), kick_(std::move(kick)), slots_(std::make_unique<Slot[]>(vcpus)) {}

bool RunGate::enter(unsigned vcpu, std::uint8_t& immediate_exit) {
  while (true) {
    std::atomic_ref(immediate_exit).store(0, std::memory_order_relaxed);
    // Sequentially consistent against `closed_` (pause() stores it, then loads `inside`): one of the two sees the
    // other.
    slots_[vcpu].inside.store(true, std::memory_order_seq_cst);
    if (!closed_.load(std::memory_order_seq_cst)) return true;
    leave(vcpu);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pauses_ == 0 || stopping(); });
    if (stopping()) return false;
  }
}

void RunGate::leave(unsigned vcpu) {
  slots_[vcpu].inside.store(false, std::memory_order_seq_cst);
  if (closed_.load(std::memory_order_seq_cst)) notify();
}

void RunGate::notify() {
  {
    const std::lock_guard lock(mutex_);
  }
  changed_.notify_all();
}

void RunGate::wait_until_outside(std::unique_lock<std::mutex>& lock) {
  const auto inside = [&](unsigned vcpu) { return slots_[vcpu].inside.load(std::memory_order_seq_cst); };
  while (true) {
    bool all_outside = true;
    for (unsigned vcpu = 0; vcpu < vcpus_; ++vcpu) {
      if (inside(vcpu)) {
        all_outside = false;
        kick_(vcpu);
      }
    }
    if (all_outside) return;
    changed_.wait_for(lock, kKickPeriod);
  }
}

void RunGate::pause() {
  std::unique_lock lock(mutex_);
  ++pauses_;
  closed_.store(true, std::memory_order_seq_cst);
  wait_until_outside(lock);
}

void RunGate::resume() {
  {
    const std::lock_guard lock(mutex_);
    --pauses_;
    if (pauses_ == 0 && !stopping()) closed_.store(false, std::memory_order_seq_cst);
  }
  changed_.notify_all();
}

void RunGate::request_stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_release);
    closed_.store(true, std::memory_order_seq_cst);
  }
  changed_.notify_all();
}

void RunGate::stop() {
  request_stop();
  std::unique_lock lock(mutex_);
  wait_until_outside(lock);
}

}  // namespace vmm::vcpu
