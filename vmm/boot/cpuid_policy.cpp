// SPDX-License-Identifier: Apache-2.0
#include "boot/cpuid_policy.hpp"

#include <algorithm>
#include <bit>

namespace vmm::boot {
namespace {

constexpr std::uint32_t kMaximumBasic = 0x0;
constexpr std::uint32_t kFeatures = 0x1;
constexpr std::uint32_t kCacheIntel = 0x4;
constexpr std::uint32_t kMwait = 0x5;
constexpr std::uint32_t kTopology = 0xb;
constexpr std::uint32_t kTopologyV2 = 0x1f;
constexpr std::uint32_t kExtendedFeatures = 0x80000001;
constexpr std::uint32_t kAddressSizes = 0x80000008;
constexpr std::uint32_t kCacheAmd = 0x8000001d;
constexpr std::uint32_t kTopologyAmd = 0x8000001e;
constexpr std::uint32_t kTopologyAmdV2 = 0x80000026;
constexpr std::uint32_t kKvmFeatures = 0x40000001;

// Leaf 1 (SDM vol. 2A, CPUID; tables 3-10 and 3-11).
constexpr std::uint32_t kEcxMonitor = 1U << 3;
constexpr std::uint32_t kEcxCx16 = 1U << 13;
constexpr std::uint32_t kEcxX2Apic = 1U << 21;
constexpr std::uint32_t kEcxTscDeadline = 1U << 24;
constexpr std::uint32_t kEcxHypervisor = 1U << 31;
constexpr std::uint32_t kEdxHtt = 1U << 28;
constexpr std::uint32_t kExtendedEcxCmpLegacy = 1U << 1;  // APM vol. 3, 0x80000001: HTT means cores, not threads

// Leaf 5: extensions are enumerated and interrupts end MWAIT even when masked; C1 has one sub-state. Linux asks for
// that before it idles with MWAIT (arch/x86/kernel/process.c).
constexpr std::uint32_t kMonitorLineBytes = 64;
constexpr std::uint32_t kMwaitExtensions = 0x3;
constexpr std::uint32_t kMwaitC1SubStates = 1U << 4;

// Bits of 0x40000001, Documentation/virt/kvm/x86/cpuid.rst: what needs the local APIC in KVM.
constexpr std::uint32_t kKvmNeedsKernelApic = 1U << 4      // ASYNC_PF: wakes a halted vCPU
                                              | 1U << 6    // PV_EOI
                                              | 1U << 7    // PV_UNHALT: kicks by a hypercall into KVM's APIC
                                              | 1U << 10   // ASYNC_PF_VMEXIT
                                              | 1U << 11   // PV_SEND_IPI
                                              | 1U << 12   // POLL_CONTROL: of KVM's own halt polling
                                              | 1U << 13   // PV_SCHED_YIELD: names its target by KVM's APIC map
                                              | 1U << 14   // ASYNC_PF_INT
                                              | 1U << 15;  // MSI_EXT_DEST_ID
constexpr std::uint32_t kKvmHintsRealtime = 1U << 0;

// Cache levels in leaves 4 and 0x8000001d: bits 4:0 type (0: no more caches), 7:5 level, 25:14 sharers - 1.
constexpr std::uint32_t kCacheTypeMask = 0x1f;
constexpr unsigned kCacheLevelShift = 5;
constexpr std::uint32_t kCacheLevelMask = 0x7;
constexpr unsigned kSharersShift = 14;
constexpr std::uint32_t kSharersMask = 0xfff;
constexpr unsigned kCoresShift = 26;  // leaf 4 only
constexpr std::uint32_t kCoresMask = 0x3f;
constexpr std::uint32_t kLastPrivateLevel = 2;

// Leaves 0xb and 0x1f (SDM vol. 2A, table 3-8): domain types.
constexpr std::uint32_t kDomainThread = 1;
constexpr std::uint32_t kDomainCore = 2;

std::uint32_t with_field(std::uint32_t value, unsigned shift, std::uint32_t mask, std::uint32_t field) {
  return (value & ~(mask << shift)) | (std::min(field, mask) << shift);
}

std::uint32_t with_bits(std::uint32_t value, std::uint32_t bits, bool set) {
  return set ? value | bits : value & ~bits;
}

bool is_amd(std::span<const CpuidEntry> entries) {
  const auto leaf = std::ranges::find(entries, kMaximumBasic, &CpuidEntry::function);
  if (leaf == entries.end()) return false;
  constexpr std::uint32_t kAuth = 0x68747541;  // "AuthenticAMD"
  constexpr std::uint32_t kHygo = 0x6f677948;  // "HygonGenuine"
  return leaf->ebx == kAuth || leaf->ebx == kHygo;
}

CpuidEntry topology_entry(std::uint32_t function, std::uint32_t index, std::uint32_t shift, std::uint32_t processors,
                          std::uint32_t domain, unsigned vcpu) {
  return {function, index, kCpuidIndexSignificant, shift, processors, index | domain << 8, vcpu};
}

// One thread a core, all cores in one package.
void add_topology(std::vector<CpuidEntry>& entries, std::uint32_t function, const CpuidPolicy& policy,
                  unsigned id_bits) {
  entries.push_back(topology_entry(function, 0, 0, 1, kDomainThread, policy.vcpu));
  entries.push_back(topology_entry(function, 1, id_bits, policy.vcpus, kDomainCore, policy.vcpu));
  entries.push_back(topology_entry(function, 2, 0, 0, 0, policy.vcpu));
}

std::uint32_t cache_sharers(std::uint32_t eax, unsigned vcpus) {
  const std::uint32_t level = eax >> kCacheLevelShift & kCacheLevelMask;
  return level <= kLastPrivateLevel ? 1 : vcpus;
}

}  // namespace

std::vector<CpuidEntry> guest_cpuid(std::span<const CpuidEntry> supported, const CpuidPolicy& policy) {
  // Id spaces are powers of two: bits of an APIC id within the package.
  const auto id_bits = static_cast<unsigned>(std::bit_width(std::max(policy.vcpus, 1U) - 1));
  const std::uint32_t id_space = 1U << id_bits;
  const bool several = policy.vcpus > 1;
  const bool amd = is_amd(supported);
  const bool grant_mwait = policy.mwait == MwaitPolicy::kGrant;
  bool has_mwait_leaf = false;
  bool has_topology_v2 = false;

  std::vector<CpuidEntry> result;
  result.reserve(supported.size() + 8);
  for (CpuidEntry entry : supported) {
    switch (entry.function) {
      case kMaximumBasic:
        // Leaf 0xb must be in reach: it is the only one that says the whole APIC id.
        entry.eax = std::max(entry.eax, kTopology);
        has_topology_v2 = entry.eax >= kTopologyV2;
        break;
      case kFeatures:
        entry.ebx = with_field(entry.ebx, 24, 0xff, policy.vcpu);
        entry.ebx = with_field(entry.ebx, 16, 0xff, id_space);
        entry.ecx = with_bits(entry.ecx, kEcxMonitor, grant_mwait);
        entry.ecx = with_bits(entry.ecx, kEcxX2Apic, policy.x2apic);
        entry.ecx = with_bits(entry.ecx, kEcxTscDeadline, policy.tsc_deadline);
        entry.ecx = with_bits(entry.ecx, kEcxHypervisor, true);
        if (policy.mask_cx16) entry.ecx &= ~kEcxCx16;
        entry.edx = with_bits(entry.edx, kEdxHtt, several);
        break;
      case kCacheIntel:
        if ((entry.eax & kCacheTypeMask) == 0) break;
        entry.eax = with_field(entry.eax, kSharersShift, kSharersMask, cache_sharers(entry.eax, id_space) - 1);
        entry.eax = with_field(entry.eax, kCoresShift, kCoresMask, id_space - 1);
        break;
      case kMwait:
        has_mwait_leaf = true;
        if (!grant_mwait) {
          entry.eax = entry.ebx = entry.ecx = entry.edx = 0;
        } else if ((entry.eax | entry.ebx) == 0) {
          entry.eax = entry.ebx = kMonitorLineBytes;
          entry.ecx = kMwaitExtensions;
          entry.edx = kMwaitC1SubStates;
        }
        break;
      case kTopology:
      case kTopologyV2:
      case kTopologyAmdV2:
        continue;  // written anew below; the last one is left out, so that leaf 0xb counts
      case kExtendedFeatures:
        if (amd) entry.ecx = with_bits(entry.ecx, kExtendedEcxCmpLegacy, several);
        break;
      case kAddressSizes:
        // APM vol. 3: threads - 1, and the bits of an APIC id. Intel reserves the register.
        if (amd) {
          entry.ecx = with_field(entry.ecx, 0, 0xff, policy.vcpus - 1);
          entry.ecx = with_field(entry.ecx, 12, 0xf, id_bits);
        }
        break;
      case kCacheAmd:
        if ((entry.eax & kCacheTypeMask) == 0) break;
        entry.eax = with_field(entry.eax, kSharersShift, kSharersMask, cache_sharers(entry.eax, policy.vcpus) - 1);
        break;
      case kTopologyAmd:
        if (!amd) break;
        entry.eax = policy.vcpu;         // extended APIC id
        entry.ebx = policy.vcpu & 0xff;  // core id; one thread a core
        entry.ecx = 0;                   // node 0 of one
        entry.edx = 0;
        break;
      case kKvmFeatures:
        if (!policy.kernel_irqchip) entry.eax &= ~kKvmNeedsKernelApic;
        entry.edx = with_bits(entry.edx, kKvmHintsRealtime, policy.hint_realtime);
        break;
      default:
        break;
    }
    result.push_back(entry);
  }
  add_topology(result, kTopology, policy, id_bits);
  if (has_topology_v2) add_topology(result, kTopologyV2, policy, id_bits);
  if (grant_mwait && !has_mwait_leaf) {
    result.push_back({kMwait, 0, 0, kMonitorLineBytes, kMonitorLineBytes, kMwaitExtensions, kMwaitC1SubStates});
  }
  return result;
}

}  // namespace vmm::boot
