// SPDX-License-Identifier: Apache-2.0
// The local APIC in xAPIC mode (SDM vol. 3, chapter 11): one uncached page. The VMM gives APIC id = vCPU index.
#pragma once

#include <cstdint>

namespace payload {

class LocalApic {
 public:
  enum Register : std::uint32_t {
    kId = 0x020,
    kTaskPriority = 0x080,
    kEoi = 0x0B0,
    kSpurious = 0x0F0,
    kInterruptRequest = 0x200,  // eight registers, 0x10 apart
    kInterruptCommandLow = 0x300,
    kInterruptCommandHigh = 0x310,
    kTimerEntry = 0x320,
    kTimerInitialCount = 0x380,
    kTimerCurrentCount = 0x390,
    kTimerDivide = 0x3E0,
  };
  static constexpr std::uint32_t kTimerMasked = 1U << 16;
  static constexpr std::uint32_t kTimerOneShot = 0U << 17;
  static constexpr std::uint32_t kTimerDeadline = 2U << 17;
  static constexpr std::uint32_t kDivideBy1 = 0xB;

  static std::uint32_t read(std::uint32_t reg) { return *at(reg); }
  static void write(std::uint32_t reg, std::uint32_t value) { *at(reg) = value; }

  static std::uint32_t id() { return read(kId) >> 24; }
  static void end_of_interrupt() { write(kEoi, 0); }
  // Software-enabled, spurious vector 0xFF, every priority accepted, the timer masked.
  static void enable() {
    write(kTaskPriority, 0);
    write(kTimerEntry, kTimerMasked);
    write(kSpurious, 0x1FF);
  }
  // A fixed IPI to one vCPU. No virtual APIC leaves the delivery status pending, so it isn't waited for: the read
  // would be one more exit.
  static void send(std::uint32_t apic_id, std::uint8_t vector) {
    write(kInterruptCommandHigh, apic_id << 24);
    write(kInterruptCommandLow, vector);
  }

 private:
  static volatile std::uint32_t* at(std::uint32_t reg) {
    return reinterpret_cast<volatile std::uint32_t*>(std::uint64_t{0xFEE00000} + reg);
  }
};

}  // namespace payload
