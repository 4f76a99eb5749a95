// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vmm::boot {

// What a bare-metal payload finds where rsi points (docs/architecture.md, "Payloads"). Every vCPU starts at the ELF
// entry at once: 64-bit mode, the first 4 GiB mapped one to one, cs 0x8, ds 0x10, no IDT, interrupts off, rdi = the
// vCPU's index and APIC id, rsp = the top of a stack of its own.
struct PayloadInfo {
  std::uint32_t magic;
  std::uint32_t vcpus;
  std::uint64_t memory_bytes;
  std::uint64_t tsc_khz;  // 0: not known
  std::uint64_t args_address;
  std::uint64_t args_bytes;  // without the NUL
};
static_assert(sizeof(PayloadInfo) == 40);
inline constexpr std::uint32_t kPayloadMagic = 0x464e4950;  // "PINF" in memory

}  // namespace vmm::boot
