// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "boot/register_state.hpp"

namespace vmm::boot {

// A flat GDT, and the segment registers that are loaded from it, so that both always agree. A 64-bit TSS descriptor
// takes two slots; the TSS itself is never used, but VM entry wants TR to hold a busy one (SDM vol. 3, 27.3.1.2).
class Gdt {
 public:
  // Selectors: the 64-bit boot protocol prescribes __BOOT_CS and __BOOT_DS (boot.rst); PVH leaves them open; payloads
  // have those of payload_info.hpp.
  static constexpr std::uint16_t kLinux64Code = 0x10;
  static constexpr std::uint16_t kLinux64Data = 0x18;
  static constexpr std::uint16_t kLinux64Tss = 0x20;
  static constexpr std::uint16_t kPvhCode = 0x08;
  static constexpr std::uint16_t kPvhData = 0x10;
  static constexpr std::uint16_t kPvhTss = 0x18;
  static constexpr std::uint16_t kPayloadCode = 0x08;
  static constexpr std::uint16_t kPayloadData = 0x10;
  static constexpr std::uint16_t kPayloadTss = 0x18;

  static Gdt linux64();
  static Gdt pvh();
  static Gdt payload();

  // The table as it lies in memory.
  std::vector<std::byte> bytes() const;
  std::uint16_t limit() const noexcept { return static_cast<std::uint16_t>(entries_.size() * 8 - 1); }
  // The register that loading `selector` gives, decoded from the table (SDM vol. 3, figures 3-8 and 8-4).
  SegmentState segment(std::uint16_t selector) const;

 private:
  std::array<std::uint64_t, 6> entries_{};
};

}  // namespace vmm::boot
