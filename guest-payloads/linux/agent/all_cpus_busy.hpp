// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <sched.h>
#include <thread>
#include <vector>

namespace guest {

// While it lives, the caller stays on the CPU it is on, and every other CPU that it may use runs a loop. Nobody wakes
// or balances towards a CPU that is not idle: a 6.1 kernel otherwise sends an idle CPU a function-call IPI from the
// tick of a busy one (nohz_balancer_kick() in kernel/sched/fair.c), every 4 ms at worst. Starting and ending it sends
// IPIs.
class AllCpusBusy {
 public:
  AllCpusBusy();
  ~AllCpusBusy();
  AllCpusBusy(const AllCpusBusy&) = delete;
  AllCpusBusy& operator=(const AllCpusBusy&) = delete;

 private:
  cpu_set_t before_{};
  std::atomic<unsigned> running_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::jthread> loops_;
};

}  // namespace guest
