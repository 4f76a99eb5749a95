// SPDX-License-Identifier: Apache-2.0
// Does the local APIC's timer wake a vCPU out of HLT, in each mode that CPUID offers? The VMM's time-out says no.

#include "runtime/runtime.hpp"
#include "runtime/timer.hpp"

namespace payload {

constinit const std::string_view kName = "probe-hlt";

void configure(Arguments&) {}

std::uint32_t run(Cpu& self) {
  if (self.index != 0) return kExitSuccess;
  std::uint64_t expected = 0;
  for (const Timer::Mode mode : {Timer::Mode::kOneShot, Timer::Mode::kDeadline}) {
    if (mode == Timer::Mode::kDeadline && !Timer::deadline_offered()) continue;
    const Timer timer(mode);
    for (int round = 0; round < 4; ++round) {
      ++expected;
      disable_interrupts();
      const std::uint64_t due = timer.arm(1000);
      halt(self);
      wait_until([&self, expected] { return self.counts.timer_interrupts.get() == expected; });
      // An interrupt that is early by more than a tenth means that the timer's rate is not what was measured.
      if (rdtsc() + microseconds_to_cycles(100) < due) return kExitFailed;
    }
  }
  return kExitSuccess;
}

}  // namespace payload
