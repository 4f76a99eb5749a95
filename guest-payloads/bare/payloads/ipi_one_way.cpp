// SPDX-License-Identifier: Apache-2.0
//
// vCPU 0 sends N IPIs to one other vCPU, each after the one before has arrived, so that none coalesce. Only the target
// receives, only vCPU 0 sends: whoever credits an injection to the sender is found out.
//
// Arguments: rounds=N (10000), kind=call-function-single|call-function|reschedule, target=I (1),
//            halt=1|0 (1: the target waits in HLT, one HLT an IPI exactly; 0: in PAUSE).
// Fails (status 1) unless the target received exactly what was sent, and halted once an IPI (or never);
// where an emulator makes it leave HLTs out, those are counted with them.

#include "runtime/runtime.hpp"

namespace payload {
namespace {

struct Settings {
  std::uint64_t rounds = 0;
  std::uint64_t target = 1;
  std::uint8_t vector = kVectorCallFunctionSingle;
  bool halt = true;
  std::atomic<std::uint64_t> waiting = 0;  // the target is ready for this IPI, counted from 1
};
constinit Settings settings;

void transmit(Cpu& self) {
  for (std::uint64_t round = 1; round <= settings.rounds; ++round) {
    wait_until([round] { return settings.waiting.load(std::memory_order_acquire) == round; });
    self.counts.ipi_sent.add();
    LocalApic::send(static_cast<std::uint32_t>(settings.target), settings.vector);
  }
}

void receive(Cpu& self) {
  for (std::uint64_t round = 1; round <= settings.rounds; ++round) {
    if (settings.halt) {
      // Interrupts are off until the HLT: the IPI finds it halted, or is pending when it halts. One HLT either way.
      disable_interrupts();
      settings.waiting.store(round, std::memory_order_release);
      halt(self);
    } else {
      settings.waiting.store(round, std::memory_order_release);
    }
    wait_until([&self, round] { return self.counts.ipi_received.get() == round; });
  }
}

}  // namespace

constinit const std::string_view kName = "ipi-one-way";

void configure(Arguments& arguments) {
  settings.rounds = arguments.number("rounds", 10000, 1, 1'000'000'000);
  constexpr std::uint8_t kVectors[] = {kVectorCallFunctionSingle, kVectorCallFunction, kVectorReschedule};
  settings.vector = kVectors[arguments.choice("kind", {"call-function-single", "call-function", "reschedule"})];
  settings.halt = arguments.choice("halt", {"1", "0"}) == 0;
  if (info().vcpus < 2) fail("bad-value", "ipi-one-way needs two vCPUs", kExitBadArguments);
  settings.target = arguments.number("target", 1, 1, info().vcpus - 1);
}

std::uint32_t run(Cpu& self) {
  const auto work = [&self] {
    if (self.index == 0) transmit(self);
    if (self.index == settings.target) receive(self);
  };
  const Interval interval = measure(self, work, [] { return true; });
  bool exact = true;
  for (std::uint32_t i = 0; i < info().vcpus; ++i) {
    const Counts& counts = cpu(i).counts;
    const bool target = i == settings.target;
    exact = exact && counts.ipi_sent.get() == (i == 0 ? settings.rounds : 0);
    exact = exact && counts.ipi_received.get() == (target ? settings.rounds : 0);
    exact = exact && counts.hlt.get() + counts.hlt_left_out.get() == (target && settings.halt ? settings.rounds : 0);
  }
  Line& text = begin_result(exact ? 0 : 1, settings.rounds, interval);
  text.field("target", settings.target).field("vector", settings.vector).field("halt", settings.halt ? 1 : 0);
  finish_result(text);
  return exact ? kExitSuccess : kExitFailed;
}

}  // namespace payload
