// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

namespace vmm::vcpu {

// Lets any thread hold all vCPUs outside KVM_RUN: for a mark, whose sources must all be read at one instant, and for
// the end. A vCPU thread brackets KVM_RUN by enter() and leave(); while it serves an exit it counts as outside, so a
// vCPU may itself pause all the others, and two that do so at once cannot wait for each other.
class RunGate {
 public:
  // `kick(vcpu)` makes a vCPU's KVM_RUN return: immediate_exit plus a signal (KVM API 5, immediate_exit). It is called
  // until the vCPU is out.
  RunGate(unsigned vcpus, std::function<void(unsigned vcpu)> kick);

  // vCPU thread: blocks while paused. False: stop, do not enter. `immediate_exit` is the byte of the kvm_run page; it
  // is cleared before the request is looked at, so that a kick between the two is never lost.
  bool enter(unsigned vcpu, std::uint8_t& immediate_exit);
  void leave(unsigned vcpu);

  // Any thread, but not one that is inside enter(): returns when every vCPU is outside KVM_RUN, which then holds until
  // resume(). Pauses nest.
  void pause();
  void resume();
  // Final: every enter() returns false from now on. request_stop() returns at once (a vCPU thread may call it while it
  // serves an exit); stop() kicks until all are out.
  void request_stop();
  void stop();
  bool stopping() const noexcept { return stop_.load(std::memory_order_acquire); }

 private:
  struct alignas(64) Slot {
    std::atomic<bool> inside{false};
  };
  void notify();
  void wait_until_outside(std::unique_lock<std::mutex>& lock);

  unsigned vcpus_;
  std::function<void(unsigned)> kick_;
  std::unique_ptr<Slot[]> slots_;
  std::atomic<bool> closed_{false};  // paused or stopping: the one flag on the fast path
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned pauses_ = 0;
};

// A pause for the length of a scope.
class Pause {
 public:
  explicit Pause(RunGate& gate) : gate_(gate) { gate_.pause(); }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;
  ~Pause() { gate_.resume(); }

 private:
  RunGate& gate_;
};

}  // namespace vmm::vcpu
