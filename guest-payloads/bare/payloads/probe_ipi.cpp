// SPDX-License-Identifier: Apache-2.0
// Does an IPI of one vCPU wake another one out of HLT? Eight times; the VMM's time-out says no.

#include "runtime/runtime.hpp"

namespace payload {
namespace {

constexpr std::uint64_t kRounds = 8;
constinit std::atomic<std::uint64_t> waiting = 0;

}  // namespace

constinit const std::string_view kName = "probe-ipi";

void configure(Arguments&) {
  if (info().vcpus < 2) fail("bad-value", "probe-ipi needs two vCPUs", kExitBadArguments);
}

std::uint32_t run(Cpu& self) {
  if (self.index > 1) return kExitSuccess;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    if (self.index == 1) {
      disable_interrupts();
      waiting.store(round);
      halt(self);
      wait_until([&self, round] { return self.counts.ipi_received.get() == round; });
    } else {
      wait_until([round] { return waiting.load() == round; });
      LocalApic::send(1, kVectorReschedule);
      wait_until([round] { return cpu(1).counts.ipi_received.get() == round; });
    }
  }
  return kExitSuccess;
}

}  // namespace payload
