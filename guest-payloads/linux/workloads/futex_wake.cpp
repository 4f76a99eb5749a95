// SPDX-License-Identifier: Apache-2.0
// Ping-pong by futexes in shared memory (wake_pingpong.hpp): the shortest way from one process to another.

#include <atomic>
#include <linux/futex.h>
#include <new>
#include <sys/syscall.h>

#include "wake_pingpong.hpp"

namespace {

class Futexes {
 public:
  Futexes() : memory_(sizeof(State)), state_(*new(memory_.get()) State) {}
  void wait(int end) {
    std::atomic<std::uint32_t>& word = state_.woken[end].word;
    while (word.exchange(0) == 0) {
      if (syscall(SYS_futex, &word, FUTEX_WAIT, 0U, nullptr) != 0 && errno != EAGAIN && errno != EINTR) {
        guest::throw_errno("FUTEX_WAIT");
      }
    }
  }
  void wake(int end) {
    std::atomic<std::uint32_t>& word = state_.woken[end].word;
    word.store(1);
    if (syscall(SYS_futex, &word, FUTEX_WAKE, 1) < 0) guest::throw_errno("FUTEX_WAKE");
  }

 private:
  struct alignas(64) Woken {
    std::atomic<std::uint32_t> word{0};
  };
  struct State {
    Woken woken[2];
  };
  guest::SharedMemory memory_;
  State& state_;
};

}  // namespace

int main(int argc, char** argv) {
  return guest::run_wake_pingpong<Futexes>("futex-wake", argc, argv);
}
