// SPDX-License-Identifier: Apache-2.0
// Every guest-physical address that the VMM chooses, in one place. This file imports nothing of the project.
#pragma once

#include <cstdint>

namespace vmm::memory::layout {

inline constexpr std::uint64_t kKiB = 1ULL << 10;
inline constexpr std::uint64_t kMiB = 1ULL << 20;
inline constexpr std::uint64_t kGiB = 1ULL << 30;
inline constexpr std::uint64_t kPageBytes = 4 * kKiB;

// --- below 1 MiB: what the VMM hands to the guest; read once at boot ---
inline constexpr std::uint64_t kGdt = 0x0500;              // a flat 64-bit GDT, kGdtBytes at most
inline constexpr std::uint64_t kPvhStartInfo = 0x6000;     // struct hvm_start_info
inline constexpr std::uint64_t kPvhModules = 0x6040;       // struct hvm_modlist_entry[1]
inline constexpr std::uint64_t kPvhMemoryMap = 0x6100;     // struct hvm_memmap_table_entry[]
inline constexpr std::uint64_t kZeroPage = 0x7000;         // struct boot_params, one page
inline constexpr std::uint64_t kPayloadInfo = 0x8000;      // struct PayloadInfo (bare-metal payloads), one page
inline constexpr std::uint64_t kPayloadArgs = 0x8100;      // NUL-terminated "key=value …", to the end of that page
inline constexpr std::uint64_t kPml4 = 0x9000;             // one page
inline constexpr std::uint64_t kPdpt = 0xA000;             // one page
inline constexpr std::uint64_t kPageDirectories = 0xB000;  // four pages: 4 GiB in pages of 2 MiB
inline constexpr std::uint64_t kCommandLine = 0x20000;     // NUL-terminated
inline constexpr std::uint64_t kCommandLineBytes = 0x10000;
inline constexpr std::uint64_t kLowMemoryEnd = 0x9FC00;  // the EBDA and the video memory begin here on a PC

// ACPI: the BIOS area; the RSDP first, on a 16-byte boundary, where kernels without a hint scan for it (ACPI 5.2.5.1).
inline constexpr std::uint64_t kAcpiTables = 0xE0000;
inline constexpr std::uint64_t kAcpiTablesEnd = 0x100000;

// --- RAM from 1 MiB ---
inline constexpr std::uint64_t kHighMemory = 0x100000;

// Stacks of payload vCPUs lie at the end of the low RAM, one under the other.
inline constexpr std::uint64_t kPayloadStackBytes = 16 * kKiB;

// --- the hole below 4 GiB: devices; RAM that does not fit below continues at 4 GiB ---
inline constexpr std::uint64_t kHoleStart = 3 * kGiB;
inline constexpr std::uint64_t kHoleEnd = 4 * kGiB;
inline constexpr std::uint64_t kIoApic = 0xFEC00000;
inline constexpr std::uint64_t kLocalApic = 0xFEE00000;
inline constexpr std::uint64_t kLocalApicBytes = 0x1000;
// KVM on Intel keeps an identity page table and three TSS pages in guest-physical space (KVM API 4.40, 4.36).
inline constexpr std::uint64_t kIdentityMap = 0xFFFBC000;
inline constexpr std::uint64_t kTss = 0xFFFBD000;

// --- limits ---
inline constexpr std::uint64_t kMemoryMinimum = 64 * kMiB;
inline constexpr std::uint64_t kMemoryMaximum = 512 * kGiB;
inline constexpr unsigned kVcpusMaximum = 64;

// --- port I/O ---
inline constexpr std::uint16_t kPayloadExitPort = 0xF4;
inline constexpr std::uint16_t kCom1 = 0x3F8;
inline constexpr std::uint8_t kCom1Gsi = 4;
inline constexpr std::uint16_t kPmEventBlock = 0x600;    // ACPI PM1a_EVT, 4 bytes
inline constexpr std::uint16_t kPmControlBlock = 0x604;  // ACPI PM1a_CNT, 2 bytes
inline constexpr std::uint8_t kSciGsi = 9;
inline constexpr std::uint8_t kSleepTypeS5 = 5;        // SLP_TYP of \_S5 in our DSDT
inline constexpr std::uint16_t kAgentChannel = 0xE00;  // 12 ports
// The FADT's reset register (ACPI 4.8.3.6), as on a PC's chipset: the value 6 resets.
inline constexpr std::uint16_t kResetPort = 0xCF9;

}  // namespace vmm::memory::layout
