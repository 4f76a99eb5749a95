// SPDX-License-Identifier: Apache-2.0
// What every payload stands on: its vCPUs, their counts, the channel to the VMM, and the measured interval.
//
// A payload defines the three names at the end of this file. Outside the measured interval no vCPU halts, sends an IPI
// or arms a timer; vCPUs that have nothing to do spin in PAUSE. So what the VMM counts between the two marks is what
// the payload counts, to the last one.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "runtime/abi.hpp"
#include "runtime/arguments.hpp"
#include "runtime/instructions.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/text.hpp"

namespace payload {

// The vectors that Linux uses on x86 (arch/x86/include/asm/irq_vectors.h), so that the VMM's filters fit both.
enum Vector : std::uint8_t {
  kVectorTimer = 0xEC,
  kVectorCallFunctionSingle = 0xFB,
  kVectorCallFunction = 0xFC,
  kVectorReschedule = 0xFD,
  kVectorSpurious = 0xFF,
};

// Written by one vCPU, read by all: a plain load and store, never a locked instruction.
class Count {
 public:
  void add() { value_.store(value_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  void take_back() { value_.store(value_.load(std::memory_order_relaxed) - 1, std::memory_order_release); }
  std::uint64_t get() const { return value_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

struct Counts {
  Count hlt;               // HLT instructions executed
  Count hlt_left_out;      // times that halt() came without HLT, see there
  Count hlt_spurious;      // of these: ended by an interrupt that brought no work
  Count ipi_sent;          // writes of the ICR
  Count ipi_skipped;       // wake-ups that needed no IPI, because the target's polling flag was up
  Count ipi_received;      // interrupts taken on one of the three IPI vectors
  Count timer_interrupts;  // interrupts taken on the timer's vector
  Count woken_early;       // idle periods that were over before they began: need_resched was up already
  Count spin_hits;         // idle periods that ended within the spin
  Count spin_hits_late;    // that ended between the end of the spin and HLT, when the flag was cleared
  Count spin_misses;       // idle periods that the spin did not cover
};

// One per vCPU, each on cache lines of its own.
struct alignas(128) Cpu {
  Cpu* self = nullptr;  // first: what the GS base points to
  std::uint32_t index = 0;
  Counts counts;
  // While not 0, an exception or a timer interrupt resumes there instead of where it came from (an exception would end
  // the payload), and leaves its vector.
  volatile std::uint64_t resume_at = 0;
  volatile std::uint32_t caught_vector = 0;
  alignas(128) std::atomic<std::uint32_t> flags = 0;  // of the idle protocol, written by wakers
};

const Info& info();
Cpu& cpu(std::uint32_t index);
// The vCPU that executes this.
Cpu& this_cpu();

// Counts, then enables interrupts and halts. Interrupts are off before.
//
// No CPU delivers an interrupt between STI and HLT. QEMU's TCG does, as an AMD SVM host: an interrupt of the host that
// comes right there ends VMRUN with the interrupt shadow saved in the VMCB, and the next VMRUN does not take it from
// there (seen with QEMU 7.2 as exits "interrupt", then "vintr", both at the HLT). The HLT that follows would sleep
// through the interrupt it waits for. So an interrupt that returns to the HLT leaves it out, and counts that instead.
void halt(Cpu& self);

inline std::uint64_t microseconds_to_cycles(std::uint64_t us) {
  return us * info().tsc_khz / 1000;
}
inline std::uint64_t cycles_to_ns(std::uint64_t cycles) {
  const std::uint64_t khz = info().tsc_khz;
  return cycles / khz * 1'000'000 + cycles % khz * 1'000'000 / khz;
}

using Line = Text<32768>;
// An empty line to fill; vCPU 0 alone uses it.
Line& line();
// Ends the line and hands it to the VMM, within this call. False: the VMM asks for the line again.
bool send(Line& text);
void console(std::string_view text);

// An error line, then the end of the VM with `value`. Any vCPU may call it.
[[noreturn]] void fail(std::string_view code, std::string_view what, std::uint32_t value);
[[noreturn]] void exit_vm(std::uint32_t value);

// Waits in PAUSE.
template <class Condition>
void wait_until(Condition condition) {
  while (!condition()) pause();
}

// The marks, sent by vCPU 0 with everybody's counts.
void mark(std::string_view name);

struct Interval {
  std::uint64_t cycles;  // of vCPU 0's TSC, between the marks
};
// Runs `work` on every vCPU between a begin and an end mark. Returns on vCPU 0; the others park for ever.
// `settled` says when everything that was sent has arrived; it is asked before the end mark, when all work is done.
namespace detail {
void arrive_and_wait_for_begin(Cpu& self);
void wait_for_all_before_begin();
void release();
[[noreturn]] void arrive_and_park();
void wait_for_all_after_work();
}  // namespace detail
template <class Work, class Settled>
Interval measure(Cpu& self, Work work, Settled settled) {
  if (self.index != 0) {
    detail::arrive_and_wait_for_begin(self);
    work();
    detail::arrive_and_park();
  }
  detail::wait_for_all_before_begin();
  mark("begin");
  const std::uint64_t start = rdtsc();
  detail::release();
  work();
  detail::wait_for_all_after_work();
  wait_until(settled);
  const std::uint64_t cycles = rdtsc() - start;
  mark("end");
  return {cycles};
}

// Opens the result line with the fields that all have; the payload adds its own and calls finish_result.
Line& begin_result(std::uint32_t status, std::uint64_t operations, const Interval& interval);
void finish_result(Line& text);

// The payload's own part -------------------------------------------------------------------------------------------

// As on the command line of the VMM.
extern const std::string_view kName;
// vCPU 0 alone, before any other vCPU runs: asks for all arguments it knows, and keeps them.
void configure(Arguments& arguments);
// On every vCPU, interrupts on. vCPU 0's value goes to the exit port; other vCPUs that return park in PAUSE.
std::uint32_t run(Cpu& self);

}  // namespace payload
