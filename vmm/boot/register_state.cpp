// SPDX-License-Identifier: Apache-2.0
#include "boot/register_state.hpp"

#include "boot/gdt.hpp"
#include "memory/layout.hpp"

namespace vmm::boot {
namespace {

namespace layout = memory::layout;

// SDM vol. 3, 2.5 and table 2-1.
constexpr std::uint64_t kCr0ProtectionEnable = 1U << 0;
constexpr std::uint64_t kCr0ExtensionType = 1U << 4;  // hard-wired to 1
constexpr std::uint64_t kCr0NumericError = 1U << 5;
constexpr std::uint64_t kCr0Paging = 1U << 31;
constexpr std::uint64_t kCr4PhysicalAddressExtension = 1U << 5;
constexpr std::uint64_t kEferLongModeEnable = 1U << 8;
constexpr std::uint64_t kEferLongModeActive = 1U << 10;

RegisterState common(const Gdt& gdt, std::uint16_t code, std::uint16_t data, std::uint16_t tss) {
  RegisterState state;
  state.gdt = {layout::kGdt, gdt.limit()};
  state.cs = gdt.segment(code);
  state.ds = gdt.segment(data);
  state.tr = gdt.segment(tss);
  state.ldt.unusable = true;
  return state;
}

void enter_long_mode(RegisterState& state) {
  state.cr0 = kCr0ProtectionEnable | kCr0ExtensionType | kCr0NumericError | kCr0Paging;
  state.cr3 = layout::kPml4;
  state.cr4 = kCr4PhysicalAddressExtension;
  state.efer = kEferLongModeEnable | kEferLongModeActive;
}

}  // namespace

RegisterState linux64_registers(std::uint64_t entry, std::uint64_t zero_page) {
  RegisterState state = common(Gdt::linux64(), Gdt::kLinux64Code, Gdt::kLinux64Data, Gdt::kLinux64Tss);
  enter_long_mode(state);
  state.rip = entry;
  state.rsi = zero_page;
  return state;
}

RegisterState pvh_registers(std::uint32_t entry, std::uint32_t start_info) {
  RegisterState state = common(Gdt::pvh(), Gdt::kPvhCode, Gdt::kPvhData, Gdt::kPvhTss);
  state.cr0 = kCr0ProtectionEnable | kCr0ExtensionType;
  state.rip = entry;
  state.rbx = start_info;
  return state;
}

RegisterState payload_registers(std::uint64_t entry, unsigned vcpu, std::uint64_t payload_info,
                                std::uint64_t stack_top) {
  RegisterState state = common(Gdt::payload(), Gdt::kPayloadCode, Gdt::kPayloadData, Gdt::kPayloadTss);
  enter_long_mode(state);
  state.rip = entry;
  state.rsp = stack_top;
  state.rdi = vcpu;
  state.rsi = payload_info;
  return state;
}

}  // namespace vmm::boot
