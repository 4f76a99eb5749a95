// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vmm::boot {

// One leaf, field by field as KVM's kvm_cpuid_entry2 (KVM API 4.20).
struct CpuidEntry {
  std::uint32_t function = 0;
  std::uint32_t index = 0;
  std::uint32_t flags = 0;  // bit 0: `index` counts
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
  bool operator==(const CpuidEntry&) const = default;
};
inline constexpr std::uint32_t kCpuidIndexSignificant = 1;

// Whether the guest sees MONITOR/MWAIT. KVM_GET_SUPPORTED_CPUID never offers it.
enum class MwaitPolicy {
  kMask,   // leaf 1 says no, leaf 5 is empty
  kGrant,  // leaf 1 says yes; leaf 5 has C1, if it was empty
};

struct CpuidPolicy {
  unsigned vcpu = 0;          // its APIC id
  unsigned vcpus = 1;         // 1 to 255; one package, each vCPU a core of one thread
  bool tsc_deadline = false;  // KVM_CAP_TSC_DEADLINE_TIMER says that KVM has it; SUPPORTED_CPUID never does
  bool x2apic = true;
  bool kernel_irqchip = true;  // else the paravirtual features that need KVM's own local APIC are masked
  bool hint_realtime = false;  // KVM_HINTS_REALTIME: vCPUs are never preempted for long
  bool mask_cx16 = false;      // hide CMPXCHG16B
  MwaitPolicy mwait = MwaitPolicy::kMask;
};

// The CPUID of one vCPU from what the host's KVM supports. Pure. Touches topology (leaves 1, 4, 0xb, 0x1f, 0x80000001,
// 0x80000008, 0x8000001d, 0x8000001e), the bits above, and the hypervisor bit; all other leaves pass unchanged, KVM's
// signature (0x40000000) included.
std::vector<CpuidEntry> guest_cpuid(std::span<const CpuidEntry> supported, const CpuidPolicy& policy);

}  // namespace vmm::boot
