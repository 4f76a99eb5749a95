// SPDX-License-Identifier: Apache-2.0
// An invalid opcode with no IDT: #UD, double fault, triple fault. The VMM must end with status 4 and the registers.
// Argument: vcpu=I (0): the one that does it.

#include "runtime/runtime.hpp"

namespace payload {
namespace {

constinit std::uint64_t victim = 0;

}  // namespace

constinit const std::string_view kName = "triple-fault";

void configure(Arguments& arguments) {
  victim = arguments.number("vcpu", 0, 0, info().vcpus - 1);
}

std::uint32_t run(Cpu& self) {
  if (self.index == victim) {
    console("triple-fault: now\n");
    disable_interrupts();
    load_idt({0, 0});
    asm volatile("ud2" ::: "memory");
  }
  for (;;) pause();
}

}  // namespace payload
