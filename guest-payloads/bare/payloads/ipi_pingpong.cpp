// SPDX-License-Identifier: Apache-2.0
//
// Two vCPUs wake each other in turn, by the protocol of Linux' idle loop (kernel/sched/idle.c; the idea of seed 1):
//   idle side: polling flag up; spin for at most spin_us while need_resched is down; flag down; with interrupts off
//              look at need_resched once more; STI;HLT.
//   waker:     need_resched up and the flag read in one atomic step; the IPI is sent only when the flag was down.
//
// Arguments: rounds=N (10000), spin_us=N (0), kind=reschedule|call-function-single|call-function (the vector).
// Result: per vCPU hlt, ipi_sent, ipi_skipped, ipi_received, spin_*; round_cycles min and median (vCPU 0's wake-up to
// its own). Fails (status 1) unless, over both vCPUs, wake-ups = sent + skipped and everything sent was received.

#include "runtime/runtime.hpp"
#include "runtime/samples.hpp"

namespace payload {
namespace {

constexpr std::uint32_t kPolling = 1;
constexpr std::uint32_t kNeedResched = 2;
constexpr std::size_t kSamples = 1024;

struct Settings {
  std::uint64_t rounds = 0;
  std::uint64_t spin_us = 0;
  std::uint8_t vector = kVectorReschedule;
};
constinit Settings settings;
constinit Samples<kSamples> samples;

void wake(Cpu& self, Cpu& target) {
  if ((target.flags.fetch_or(kNeedResched) & kPolling) != 0) {
    self.counts.ipi_skipped.add();
    return;
  }
  // An IPI that the target has not taken yet, because it saw need_resched before it arrived, would swallow this one
  // (the same bit of its IRR). The target takes it without this vCPU's help, so waiting is safe, and sent = received.
  wait_until([&] { return target.counts.ipi_received.get() == self.counts.ipi_sent.get(); });
  self.counts.ipi_sent.add();
  LocalApic::send(target.index, settings.vector);
}

// Returns when somebody has woken this vCPU, with need_resched and the polling flag down.
void idle(Cpu& self, std::uint64_t spin_cycles) {
  if ((self.flags.fetch_or(kPolling) & kNeedResched) != 0) {
    self.counts.woken_early.add();
    self.flags.store(0);
    return;
  }
  const std::uint64_t start = rdtsc();
  while ((self.flags.load(std::memory_order_acquire) & kNeedResched) == 0 && rdtsc() - start < spin_cycles) pause();
  if ((self.flags.load() & kNeedResched) != 0) {
    self.counts.spin_hits.add();
    self.flags.store(0);
    return;
  }
  disable_interrupts();
  self.flags.fetch_and(~kPolling);
  if ((self.flags.load() & kNeedResched) != 0) {
    self.counts.spin_hits_late.add();
    enable_interrupts();
    self.flags.store(0);
    return;
  }
  self.counts.spin_misses.add();
  for (;;) {
    halt(self);
    disable_interrupts();
    if ((self.flags.load() & kNeedResched) != 0) break;
    // The IPI of a wake-up that was seen before it arrived.
    self.counts.hlt_spurious.add();
  }
  enable_interrupts();
  self.flags.store(0);
}

void play(Cpu& self) {
  if (self.index > 1) return;
  const std::uint64_t spin_cycles = microseconds_to_cycles(settings.spin_us);
  Cpu& other = cpu(1 - self.index);
  for (std::uint64_t round = 0; round < settings.rounds; ++round) {
    if (self.index == 0) {
      const std::uint64_t start = rdtsc();
      wake(self, other);
      idle(self, spin_cycles);
      samples.add(rdtsc() - start);
    } else {
      idle(self, spin_cycles);
      wake(self, other);
    }
  }
}

bool settled() {
  return cpu(0).counts.ipi_sent.get() == cpu(1).counts.ipi_received.get() &&
         cpu(1).counts.ipi_sent.get() == cpu(0).counts.ipi_received.get();
}

}  // namespace

constinit const std::string_view kName = "ipi-pingpong";

void configure(Arguments& arguments) {
  settings.rounds = arguments.number("rounds", 10000, 1, 1'000'000'000);
  settings.spin_us = arguments.number("spin_us", 0, 0, 1'000'000);
  constexpr std::uint8_t kVectors[] = {kVectorReschedule, kVectorCallFunctionSingle, kVectorCallFunction};
  settings.vector = kVectors[arguments.choice("kind", {"reschedule", "call-function-single", "call-function"})];
  if (info().vcpus < 2) fail("bad-value", "ipi-pingpong needs two vCPUs", kExitBadArguments);
}

std::uint32_t run(Cpu& self) {
  if (self.index == 0) samples.start(settings.rounds);
  const Interval interval = measure(self, [&self] { play(self); }, settled);
  std::uint64_t wakes = 0;
  std::uint64_t idles = 0;
  for (std::uint32_t i = 0; i < 2; ++i) {
    const Counts& counts = cpu(i).counts;
    wakes += counts.ipi_sent.get() + counts.ipi_skipped.get();
    idles += counts.woken_early.get() + counts.spin_hits.get() + counts.spin_hits_late.get() + counts.spin_misses.get();
  }
  const bool exact = wakes == 2 * settings.rounds && idles == 2 * settings.rounds;
  Line& text = begin_result(exact ? 0 : 1, settings.rounds, interval);
  text.field("spin_us", settings.spin_us).field("vector", settings.vector);
  text.key("round_cycles").open('{').field("count", samples.seen()).field("min", samples.minimum());
  text.field("median", samples.median()).close('}');
  finish_result(text);
  return exact ? kExitSuccess : kExitFailed;
}

}  // namespace payload
