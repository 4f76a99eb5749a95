// SPDX-License-Identifier: Apache-2.0
#include "machine/vcpu_setup.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace vmm::machine {
namespace {

// Offsets in the local APIC's register page (SDM vol. 3, table 11-1).
constexpr std::size_t kApicIrr = 0x200;  // eight 32-bit registers, 16 bytes apart
constexpr std::size_t kApicLint0 = 0x350;
constexpr std::size_t kApicLint1 = 0x360;
constexpr std::uint32_t kDeliveryNmi = 0x400;
constexpr std::uint32_t kDeliveryExtInt = 0x700;

// MSRs (SDM vol. 4, table 2-2).
constexpr std::uint32_t kMsrMiscEnable = 0x1a0;
constexpr std::uint64_t kMiscEnableFastString = 1;
constexpr std::uint32_t kMsrMtrrDefaultType = 0x2ff;
constexpr std::uint64_t kMtrrEnable = 1U << 11;
constexpr std::uint64_t kMtrrWriteBack = 6;

// IPI vectors: reschedule, call function, call function single, reboot, platform, IRQ work
// (arch/x86/include/asm/irq_vectors.h).
constexpr std::array<unsigned, 6> kIpiVectors = {0xfd, 0xfc, 0xfb, 0xf8, 0xf7, 0xf6};

std::uint32_t load(const kvm_lapic_state& apic, std::size_t offset) noexcept {
  std::uint32_t value = 0;
  std::memcpy(&value, apic.regs + offset, sizeof value);
  return value;
}

void store(kvm_lapic_state& apic, std::size_t offset, std::uint32_t value) noexcept {
  std::memcpy(apic.regs + offset, &value, sizeof value);
}

kvm_segment to_kvm(const boot::SegmentState& state) {
  kvm_segment segment{};
  segment.base = state.base;
  segment.limit = state.limit;
  segment.selector = state.selector;
  segment.type = state.type;
  segment.present = state.present ? 1 : 0;
  segment.dpl = state.privilege;
  segment.db = state.default_big ? 1 : 0;
  segment.s = state.code_or_data ? 1 : 0;
  segment.l = state.long_mode ? 1 : 0;
  segment.g = state.granularity ? 1 : 0;
  segment.unusable = state.unusable ? 1 : 0;
  return segment;
}

kvm_dtable to_kvm(const boot::TableState& state) {
  kvm_dtable table{};
  table.base = state.base;
  table.limit = state.limit;
  return table;
}

}  // namespace

std::vector<boot::CpuidEntry> from_kvm(const std::vector<kvm_cpuid_entry2>& entries) {
  std::vector<boot::CpuidEntry> result;
  result.reserve(entries.size());
  for (const auto& e : entries) result.push_back({e.function, e.index, e.flags, e.eax, e.ebx, e.ecx, e.edx});
  return result;
}

std::vector<kvm_cpuid_entry2> to_kvm(const std::vector<boot::CpuidEntry>& entries) {
  std::vector<kvm_cpuid_entry2> result;
  result.reserve(entries.size());
  for (const auto& e : entries) {
    kvm_cpuid_entry2 out{};
    out.function = e.function;
    out.index = e.index;
    out.flags = e.flags;
    out.eax = e.eax;
    out.ebx = e.ebx;
    out.ecx = e.ecx;
    out.edx = e.edx;
    result.push_back(out);
  }
  return result;
}

void apply_registers(kvm::Vcpu& vcpu, const boot::RegisterState& state) {
  kvm_regs general{};
  general.rip = state.rip;
  general.rsp = state.rsp;
  general.rbp = state.rbp;
  general.rbx = state.rbx;
  general.rsi = state.rsi;
  general.rdi = state.rdi;
  general.rflags = state.rflags;
  vcpu.set_registers(general);

  kvm_sregs special = vcpu.special_registers();
  special.cr0 = state.cr0;
  special.cr3 = state.cr3;
  special.cr4 = state.cr4;
  special.efer = state.efer;
  special.cs = to_kvm(state.cs);
  special.ds = special.es = special.fs = special.gs = special.ss = to_kvm(state.ds);
  special.tr = to_kvm(state.tr);
  special.ldt = to_kvm(state.ldt);
  special.gdt = to_kvm(state.gdt);
  special.idt = to_kvm(state.idt);
  vcpu.set_special_registers(special);
}

void apply_firmware_state(kvm::Vcpu& vcpu) {
  const std::array<kvm_msr_entry, 2> msrs{
      {{kMsrMiscEnable, 0, kMiscEnableFastString}, {kMsrMtrrDefaultType, 0, kMtrrEnable | kMtrrWriteBack}}};
  vcpu.set_msrs(msrs);
  kvm_fpu fpu{};
  fpu.fcw = 0x37f;     // as after FNINIT
  fpu.mxcsr = 0x1f80;  // as after reset
  vcpu.set_fpu(fpu);
  kvm_lapic_state apic = vcpu.local_apic();
  store(apic, kApicLint0, kDeliveryExtInt);
  store(apic, kApicLint1, kDeliveryNmi);
  vcpu.set_local_apic(apic);
}

bool ipi_pending(const kvm_lapic_state& local_apic) noexcept {
  return std::ranges::any_of(kIpiVectors, [&](unsigned vector) {
    return (load(local_apic, kApicIrr + std::size_t{vector / 32} * 16) >> (vector % 32) & 1U) != 0;
  });
}

}  // namespace vmm::machine
