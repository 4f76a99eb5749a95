// SPDX-License-Identifier: Apache-2.0
// What the x86 boot protocol fixes beyond <asm/bootparam.h> (Documentation/arch/x86/boot.rst, zero-page.rst).
#pragma once

#include <cstdint>

namespace vmm::boot::linux_abi {

// --- offsets in the first sector, and so in the zero page ---
inline constexpr std::uint64_t kSetupHeader = 0x1f1;
inline constexpr std::uint64_t kBootFlag = 0x1fe;
// The second byte of the jump: the setup header ends at 0x202 plus its value.
inline constexpr std::uint64_t kJumpOffset = 0x201;
inline constexpr std::uint64_t kHeaderMagic = 0x202;
// The zero page's next field after the setup header (edd_mbr_sig_buffer): no header can reach further.
inline constexpr std::uint64_t kSetupHeaderEnd = 0x290;

inline constexpr std::uint16_t kBootFlagValue = 0xaa55;
inline constexpr std::uint32_t kHeaderMagicValue = 0x53726448;  // "HdrS"
inline constexpr std::uint16_t kVersion64BitEntry = 0x020c;     // 2.12: xloadflags
inline constexpr std::uint64_t kSectorBytes = 512;
inline constexpr std::uint64_t kDefaultSetupSectors = 4;  // what setup_sects = 0 means
inline constexpr std::uint64_t kParagraphBytes = 16;      // the unit of syssize
inline constexpr std::uint64_t kEntry64Offset = 0x200;

// COMMAND_LINE_SIZE - 1 of arch/x86/include/asm/setup.h; an ELF vmlinux says nothing of its own.
inline constexpr std::uint64_t kElfCommandLineCapacity = 2047;
// Without a bzImage's header the initrd's address travels in 32 bits.
inline constexpr std::uint64_t kElfInitrdAddrMax = 0xffffffff;

}  // namespace vmm::boot::linux_abi
