// SPDX-License-Identifier: Apache-2.0
#include "agent/all_cpus_busy.hpp"

#include <cerrno>
#include <system_error>

namespace guest {
namespace {

void pin_to(int cpu) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(cpu, &only);
  // Fails for a CPU that went offline since it was asked for: then there is nothing to keep busy either.
  if (sched_setaffinity(0, sizeof(only), &only) != 0) return;
}

}  // namespace

AllCpusBusy::AllCpusBusy() {
  if (sched_getaffinity(0, sizeof(before_), &before_) != 0) {
    throw std::system_error(errno, std::generic_category(), "sched_getaffinity");
  }
  const int here = sched_getcpu();
  pin_to(here);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (cpu == here || !CPU_ISSET(cpu, &before_)) continue;
    loops_.emplace_back([this, cpu] {
      pin_to(cpu);
      ++running_;
      while (!stop_) __builtin_ia32_pause();
    });
  }
  while (running_ != loops_.size()) std::this_thread::yield();
}

AllCpusBusy::~AllCpusBusy() {
  stop_ = true;
  loops_.clear();
  sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace guest
