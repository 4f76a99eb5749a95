// SPDX-License-Identifier: Apache-2.0
// Can this KVM deliver a breakpoint exception? Linux does it at boot (the self-test of arch/x86/kernel/alternative.c).

#include "runtime/runtime.hpp"

namespace payload {

constinit const std::string_view kName = "probe-int3";

void configure(Arguments&) {}

std::uint32_t run(Cpu& self) {
  if (self.index != 0) return kExitSuccess;
  self.caught_vector = 0;
  // The handler resumes at the label; without it the instruction behind INT3 would be reached too, but caught_vector
  // would still be 0.
  asm volatile("lea 1f(%%rip), %%rdx; mov %%rdx, %0; int3; 1:" : "=m"(self.resume_at)::"rdx", "memory");
  const bool delivered = self.caught_vector == 3 && self.resume_at == 0;
  self.resume_at = 0;
  return delivered ? kExitSuccess : kExitFailed;
}

}  // namespace payload
