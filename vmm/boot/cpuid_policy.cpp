// SPDX-License-Identifier: Apache-2.0
#include "boot/cpuid_policy.hpp"

#include <bit>

namespace vmm::boot {
namespace {

// Leaf 1 (SDM vol. 2A, CPUID).
constexpr std::uint32_t kLeaf1Monitor = 1U << 3;       // ECX
constexpr std::uint32_t kLeaf1X2apic = 1U << 21;       // ECX
constexpr std::uint32_t kLeaf1TscDeadline = 1U << 24;  // ECX
constexpr std::uint32_t kLeaf1Hypervisor = 1U << 31;   // ECX
constexpr std::uint32_t kLeaf1Htt = 1U << 28;          // EDX: EBX[23:16] is valid

// KVM's leaves (Documentation/virt/kvm/x86/cpuid.rst).
constexpr std::uint32_t kKvmFeatures = 0x40000001;
constexpr std::uint32_t kKvmHintsRealtime = 1U << 0;         // EDX
constexpr std::uint32_t kKvmNeedsKernelApic = (1U << 4)      // async page faults (their interrupt)
                                              | (1U << 6)    // PV EOI
                                              | (1U << 7)    // PV unhalt (kick by hypercall)
                                              | (1U << 10)   // async page fault as VM exit
                                              | (1U << 11)   // PV send IPI
                                              | (1U << 13)   // PV sched yield
                                              | (1U << 14)   // async page fault interrupt
                                              | (1U << 15);  // extended destination id

// Topology leaf levels (SDM vol. 2A, CPUID leaf 0BH).
constexpr std::uint32_t kLevelInvalid = 0, kLevelSmt = 1, kLevelCore = 2;

unsigned id_bits(unsigned vcpus) {
  return vcpus <= 1 ? 0U : static_cast<unsigned>(std::bit_width(vcpus - 1U));
}

void set_topology(CpuidEntry& entry, const CpuidPolicy& policy) {
  entry.ecx = entry.index;
  entry.edx = policy.vcpu;
  if (entry.index == 0) {  // threads of a core: one
    entry.eax = 0;
    entry.ebx = 1;
    entry.ecx |= kLevelSmt << 8;
  } else if (entry.index == 1) {  // cores of the package
    entry.eax = id_bits(policy.vcpus);
    entry.ebx = policy.vcpus;
    entry.ecx |= kLevelCore << 8;
  } else {
    entry.eax = entry.ebx = 0;
    entry.ecx |= kLevelInvalid << 8;
  }
}

void apply(CpuidEntry& entry, const CpuidPolicy& policy) {
  switch (entry.function) {
    case 0x1: {
      const std::uint32_t logical = policy.vcpus > 1 ? (1U << id_bits(policy.vcpus)) : 1U;
      entry.ebx = (entry.ebx & 0x0000ffff) | (logical << 16) | (policy.vcpu << 24);
      entry.edx = policy.vcpus > 1 ? entry.edx | kLeaf1Htt : entry.edx & ~kLeaf1Htt;
      entry.ecx |= kLeaf1Hypervisor;
      entry.ecx = policy.tsc_deadline ? entry.ecx | kLeaf1TscDeadline : entry.ecx & ~kLeaf1TscDeadline;
      if (!policy.kernel_irqchip) entry.ecx &= ~kLeaf1X2apic;
      entry.ecx = policy.mwait == MwaitPolicy::kGrant ? entry.ecx | kLeaf1Monitor : entry.ecx & ~kLeaf1Monitor;
      break;
    }
    case 0x4: {
      // EAX[31:26]: cores of the package less one; EAX[25:14]: logical CPUs that share this cache less one.
      if ((entry.eax & 0x1f) == 0) break;
      const std::uint32_t level = (entry.eax >> 5) & 7;
      const std::uint32_t sharing = level >= 3 ? policy.vcpus - 1 : 0;
      entry.eax = (entry.eax & 0x3fff) | (sharing << 14) | ((policy.vcpus - 1) << 26);
      break;
    }
    case 0xb:
    case 0x1f:
      set_topology(entry, policy);
      break;
    case kKvmFeatures:
      if (!policy.kernel_irqchip) entry.eax &= ~kKvmNeedsKernelApic;
      entry.edx = policy.hint_realtime ? entry.edx | kKvmHintsRealtime : entry.edx & ~kKvmHintsRealtime;
      break;
    case 0x80000008:
      // AMD (APM vol. 3, E.4.7): ECX[7:0] cores less one, ECX[15:12] bits of the APIC id that number them.
      entry.ecx = (entry.ecx & ~0xf0ffU) | (policy.vcpus - 1) | (id_bits(policy.vcpus) << 12);
      break;
    case 0x8000001e:
      // AMD (APM vol. 3, E.4.17): extended APIC id; core id with one thread; one node.
      entry.eax = policy.vcpu;
      entry.ebx = policy.vcpu & 0xff;
      entry.ecx = 0;
      break;
    default:
      break;
  }
}

}  // namespace

std::vector<CpuidEntry> guest_cpuid(std::span<const CpuidEntry> supported, const CpuidPolicy& policy) {
  std::vector<CpuidEntry> result(supported.begin(), supported.end());
  for (CpuidEntry& entry : result) apply(entry, policy);
  return result;
}

}  // namespace vmm::boot
