// SPDX-License-Identifier: Apache-2.0
// Every vCPU spins for ever, interrupts off. For the VMM's time-out.

#include "runtime/runtime.hpp"

namespace payload {

constinit const std::string_view kName = "wedge-spin";

void configure(Arguments&) {}

std::uint32_t run(Cpu& self) {
  if (self.index == 0) console("wedge-spin: spinning\n");
  disable_interrupts();
  for (;;) pause();
}

}  // namespace payload
