// SPDX-License-Identifier: Apache-2.0
// One-shot interrupts of the local APIC's timer, by either of its modes.
#pragma once

#include "runtime/runtime.hpp"

namespace payload {

class Timer {
 public:
  enum class Mode { kAutomatic, kDeadline, kOneShot };

  static bool deadline_offered() { return (cpuid(1).ecx >> 24 & 1) != 0; }

  // Prepares this vCPU's timer. One-shot mode measures the timer's rate against the TSC for 5 ms with the interrupt
  // masked. TSC-deadline mode where CPUID has it, unless told otherwise; fails where it was asked for and isn't there.
  explicit Timer(Mode mode) {
    deadline_ = mode == Mode::kDeadline || (mode == Mode::kAutomatic && deadline_offered());
    if (deadline_) {
      if (!deadline_offered()) fail("not-offered", "CPUID has no TSC-deadline timer", kExitNotOffered);
      LocalApic::write(LocalApic::kTimerEntry, LocalApic::kTimerDeadline | kVectorTimer);
      return;
    }
    LocalApic::write(LocalApic::kTimerDivide, LocalApic::kDivideBy1);
    LocalApic::write(LocalApic::kTimerEntry, LocalApic::kTimerOneShot | LocalApic::kTimerMasked | kVectorTimer);
    LocalApic::write(LocalApic::kTimerInitialCount, 0xFFFFFFFF);
    const std::uint64_t start = rdtsc();
    const std::uint32_t first = LocalApic::read(LocalApic::kTimerCurrentCount);
    const std::uint64_t span = microseconds_to_cycles(5000);
    while (rdtsc() - start < span) pause();
    const std::uint32_t last = LocalApic::read(LocalApic::kTimerCurrentCount);
    const std::uint64_t cycles = rdtsc() - start;
    LocalApic::write(LocalApic::kTimerInitialCount, 0);
    ticks_per_second_ = std::uint64_t{first - last} * (info().tsc_khz * 1000) / cycles;
    if (ticks_per_second_ == 0) fail("timer", "the local APIC's timer does not count", kExitFailed);
    LocalApic::write(LocalApic::kTimerEntry, LocalApic::kTimerOneShot | kVectorTimer);
  }

  bool deadline() const { return deadline_; }
  // 0 in TSC-deadline mode.
  std::uint64_t ticks_per_second() const { return ticks_per_second_; }

  // One interrupt, `us` from now. Returns the TSC value at which it is due.
  std::uint64_t arm(std::uint64_t us) const {
    const std::uint64_t due = rdtsc() + microseconds_to_cycles(us);
    if (deadline_) {
      wrmsr(kMsrTscDeadline, due);
    } else {
      const std::uint64_t ticks = us * ticks_per_second_ / 1'000'000;
      LocalApic::write(LocalApic::kTimerInitialCount, ticks == 0           ? 1
                                                      : ticks > 0xFFFFFFFF ? 0xFFFFFFFF
                                                                           : static_cast<std::uint32_t>(ticks));
    }
    return due;
  }

  // No interrupt any more; one that was already pending may still be taken.
  void disarm() const {
    if (deadline_) {
      wrmsr(kMsrTscDeadline, 0);
    } else {
      LocalApic::write(LocalApic::kTimerInitialCount, 0);
    }
  }

 private:
  static constexpr std::uint32_t kMsrTscDeadline = 0x6E0;
  bool deadline_ = false;
  std::uint64_t ticks_per_second_ = 0;
};

}  // namespace payload
