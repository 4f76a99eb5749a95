// SPDX-License-Identifier: Apache-2.0
#include "boot/register_state.hpp"

#include "boot/tables.hpp"
#include "memory/layout.hpp"

namespace vmm::boot {
namespace {

// Control register bits (SDM vol. 3, 2.5) and EFER (2.2.1).
constexpr std::uint64_t kCr0ProtectionEnable = 1U << 0;
constexpr std::uint64_t kCr0ExtensionType = 1U << 4;
constexpr std::uint64_t kCr0NumericError = 1U << 5;
constexpr std::uint64_t kCr0Paging = 1U << 31;
constexpr std::uint64_t kCr4PhysicalAddressExtension = 1U << 5;
constexpr std::uint64_t kEferLongModeEnable = 1U << 8;
constexpr std::uint64_t kEferLongModeActive = 1U << 10;

// Segment types (SDM vol. 3, table 3-1 and 3-2).
constexpr std::uint8_t kCodeType = 0xb;     // execute/read, accessed
constexpr std::uint8_t kDataType = 0x3;     // read/write, accessed
constexpr std::uint8_t kBusyTssType = 0xb;
constexpr std::uint32_t kTssLimit = 0x67;

Segment task_segment() {
  return {kTaskSelector, 0, kTssLimit, kBusyTssType, true, false, false, false, false};
}

}  // namespace

RegisterState long_mode_registers(std::uint64_t rip) {
  RegisterState state;
  state.rip = rip;
  state.cr0 = kCr0ProtectionEnable | kCr0ExtensionType | kCr0NumericError | kCr0Paging;
  state.cr3 = memory::layout::kPml4;
  state.cr4 = kCr4PhysicalAddressExtension;
  state.efer = kEferLongModeEnable | kEferLongModeActive;
  state.cs = {kCodeSelector, 0, 0xffffffff, kCodeType, true, true, true, false, true};
  state.data = {kDataSelector, 0, 0xffffffff, kDataType, true, true, false, true, true};
  state.task = task_segment();
  state.gdt_address = memory::layout::kGdt;
  state.gdt_limit = sizeof(flat_gdt()) - 1;
  return state;
}

RegisterState pvh_registers(std::uint64_t rip, std::uint64_t start_info) {
  RegisterState state;
  state.rip = rip;
  state.rbx = start_info;
  state.cr0 = kCr0ProtectionEnable | kCr0ExtensionType | kCr0NumericError;
  state.cs = {kCodeSelector, 0, 0xffffffff, kCodeType, true, true, false, true, true};
  state.data = {kDataSelector, 0, 0xffffffff, kDataType, true, true, false, true, true};
  state.task = task_segment();
  state.gdt_address = memory::layout::kGdt;
  state.gdt_limit = sizeof(flat_gdt()) - 1;
  return state;
}

}  // namespace vmm::boot
