// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vmm::boot {

// A segment register with its hidden part (SDM vol. 3, 3.4.5 and figure 3-8).
struct SegmentState {
  std::uint64_t base = 0;
  std::uint32_t limit = 0;  // bytes, as expanded by `granularity`
  std::uint16_t selector = 0;
  std::uint8_t type = 0;       // 4 bits; code 0xb, data 0x3, busy TSS 0xb
  bool present = false;        // P
  std::uint8_t privilege = 0;  // DPL
  bool default_big = false;    // D/B
  bool code_or_data = false;   // S
  bool long_mode = false;      // L
  bool granularity = false;    // G
  bool unusable = false;
  bool operator==(const SegmentState&) const = default;
};

// A descriptor-table register.
struct TableState {
  std::uint64_t base = 0;
  std::uint16_t limit = 0;
  bool operator==(const TableState&) const = default;
};

// The registers that a boot protocol prescribes. General registers that are not here are 0; every other piece of state
// keeps its reset value.
struct RegisterState {
  std::uint64_t rip = 0;
  std::uint64_t rsp = 0;
  std::uint64_t rbp = 0;
  std::uint64_t rbx = 0;
  std::uint64_t rsi = 0;
  std::uint64_t rdi = 0;
  std::uint64_t rflags = 0x2;  // bit 1 is always set; interrupts are off
  std::uint64_t cr0 = 0;
  std::uint64_t cr3 = 0;
  std::uint64_t cr4 = 0;
  std::uint64_t efer = 0;
  SegmentState cs;
  SegmentState ds;  // for ds, es, fs, gs and ss alike
  SegmentState tr;
  SegmentState ldt;
  TableState gdt;
  TableState idt;
  bool operator==(const RegisterState&) const = default;
};

// vCPU 0 of Linux at a 64-bit entry (boot.rst, "64-bit boot protocol"): long mode, identity map, cs 0x10, ds 0x18,
// rsi = the zero page. For a bzImage and for an ELF vmlinux without a PVH note alike.
RegisterState linux64_registers(std::uint64_t entry, std::uint64_t zero_page);

// vCPU 0 at a PVH entry (Xen's pvh.pandoc): 32-bit flat protected mode without paging, ebx = hvm_start_info.
RegisterState pvh_registers(std::uint32_t entry, std::uint32_t start_info);

// Any vCPU of a bare-metal payload: long mode, identity map, cs 0x8, ds 0x10, rdi = index, rsi = PayloadInfo.
RegisterState payload_registers(std::uint64_t entry, unsigned vcpu, std::uint64_t payload_info,
                                std::uint64_t stack_top);

}  // namespace vmm::boot
