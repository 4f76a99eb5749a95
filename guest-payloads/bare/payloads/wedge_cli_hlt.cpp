// SPDX-License-Identifier: Apache-2.0
// Every vCPU halts with interrupts off: nothing ever ends it. For the VMM's time-out.

#include "runtime/runtime.hpp"

namespace payload {

constinit const std::string_view kName = "wedge-cli-hlt";

void configure(Arguments&) {}

std::uint32_t run(Cpu& self) {
  if (self.index == 0) console("wedge-cli-hlt: halting with interrupts off\n");
  halt_for_ever();
}

}  // namespace payload
