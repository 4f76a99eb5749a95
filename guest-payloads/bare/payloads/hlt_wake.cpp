// SPDX-License-Identifier: Apache-2.0
//
// Every vCPU arms its own timer and halts, N times. Interrupts are off between the two, so a timer that is early is
// pending when the vCPU halts: one HLT and one timer interrupt a round, exactly, however slow the machine is.
//
// Arguments: rounds=N (10000), period_us=N (100), timer=auto|deadline|oneshot.
// Result: timer mode, its rate where it was measured, and how late vCPU 0's wake-ups were, in cycles.
// Fails (status 1) unless every vCPU has hlt (+ hlt_left_out, under an emulator) = timer_interrupts = rounds.

#include "runtime/runtime.hpp"
#include "runtime/samples.hpp"
#include "runtime/timer.hpp"

namespace payload {
namespace {

constexpr std::size_t kSamples = 1024;

struct Settings {
  std::uint64_t rounds = 0;
  std::uint64_t period_us = 0;
  Timer::Mode mode = Timer::Mode::kAutomatic;
  bool deadline = false;
  std::uint64_t ticks_per_second = 0;
};
constinit Settings settings;
constinit Samples<kSamples> late;

void halt_rounds(Cpu& self, const Timer& timer) {
  for (std::uint64_t round = 1; round <= settings.rounds; ++round) {
    disable_interrupts();
    const std::uint64_t due = timer.arm(settings.period_us);
    halt(self);
    const std::uint64_t now = rdtsc();
    if (self.counts.timer_interrupts.get() < round) self.counts.hlt_spurious.add();
    wait_until([&self, round] { return self.counts.timer_interrupts.get() >= round; });
    if (self.index == 0) late.add(now > due ? now - due : 0);
  }
}

}  // namespace

constinit const std::string_view kName = "hlt-wake";

void configure(Arguments& arguments) {
  settings.rounds = arguments.number("rounds", 10000, 1, 1'000'000'000);
  settings.period_us = arguments.number("period_us", 100, 1, 4'000'000);
  constexpr Timer::Mode kModes[] = {Timer::Mode::kAutomatic, Timer::Mode::kDeadline, Timer::Mode::kOneShot};
  settings.mode = kModes[arguments.choice("timer", {"auto", "deadline", "oneshot"})];
}

std::uint32_t run(Cpu& self) {
  const Timer timer(settings.mode);
  if (self.index == 0) {
    late.start(settings.rounds);
    settings.deadline = timer.deadline();
    settings.ticks_per_second = timer.ticks_per_second();
  }
  const Interval interval = measure(self, [&] { halt_rounds(self, timer); }, [] { return true; });
  bool exact = true;
  for (std::uint32_t i = 0; i < info().vcpus; ++i) {
    exact = exact && cpu(i).counts.hlt.get() + cpu(i).counts.hlt_left_out.get() == settings.rounds;
    exact = exact && cpu(i).counts.timer_interrupts.get() == settings.rounds;
  }
  Line& text = begin_result(exact ? 0 : 1, settings.rounds * info().vcpus, interval);
  text.field("period_us", settings.period_us);
  text.field("timer", settings.deadline ? "lapic-deadline" : "lapic");
  text.key("timer_hz");
  if (settings.deadline) {
    text.literal("null");
  } else {
    text.number(settings.ticks_per_second);
  }
  text.key("late_cycles").open('{').field("count", late.seen()).field("min", late.minimum());
  text.field("median", late.median()).close('}');
  finish_result(text);
  return exact ? kExitSuccess : kExitFailed;
}

}  // namespace payload
