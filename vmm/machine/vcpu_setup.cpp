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
