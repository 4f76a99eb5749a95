// SPDX-License-Identifier: Apache-2.0
#include "boot/cpuid_policy.hpp"

#include <algorithm>
#include <optional>

#include "images.hpp"

namespace vmm::boot::test {
namespace {

constexpr std::uint32_t kMonitor = 1U << 3;
constexpr std::uint32_t kCx16 = 1U << 13;
constexpr std::uint32_t kX2Apic = 1U << 21;
constexpr std::uint32_t kDeadline = 1U << 24;
constexpr std::uint32_t kHypervisor = 1U << 31;
constexpr std::uint32_t kHtt = 1U << 28;

// "GenuineIntel" and "AuthenticAMD" as leaf 0 has them: ebx, edx, ecx.
CpuidEntry intel() {
  return {0, 0, 0, 0x16, 0x756e6547, 0x6c65746e, 0x49656e69};
}
CpuidEntry amd() {
  return {0, 0, 0, 0x10, 0x68747541, 0x444d4163, 0x69746e65};
}

std::vector<CpuidEntry> supported(CpuidEntry vendor) {
  return {vendor,
          {1, 0, 0, 0x806f8, 0x12345678, 0x76fa3203 & ~kDeadline, 0x0f8bfbff},
          {4, 0, 1, 0xfc004121, 0x02c0003f, 0x3f, 0},    // L1d, 2 sharers, 64 cores
          {4, 1, 1, 0xfc004143, 0x03c0003f, 0x7ff, 0},   // L2
          {4, 2, 1, 0xfc1fc163, 0x0380003f, 0xffff, 4},  // L3
          {4, 3, 1, 0, 0, 0, 0},
          {5, 0, 0, 0, 0, 0, 0},
          {6, 0, 0, 4, 0, 0, 0},
          {7, 0, 1, 2, 0xf1bf27ab, 0x415fde, 0xac004410},
          {0xb, 0, 1, 0, 0, 0, 0},
          {0xd, 0, 1, 0x2e7, 0x2700, 0x2b00, 0},
          {0x40000000, 0, 0, 0x40000001, 0x4b4d564b, 0x564b4d56, 0x4d},
          {0x40000001, 0, 0, 0x0100fefb, 0, 0, 0},
          {0x80000000, 0, 0, 0x80000021, 0, 0, 0},
          {0x80000001, 0, 0, 0x806f8, 0, 0x00c001f1, 0x2c100800},
          {0x80000008, 0, 0, 0x3039, 0x0100d200, 0, 0},
          {0x8000001d, 0, 1, 0x121, 0x01c0003f, 0x3f, 0},
          {0x8000001d, 3, 1, 0x1c163, 0x03c0003f, 0x3fff, 0},
          {0x8000001e, 0, 0, 0, 0, 0, 0}};
}

const CpuidEntry& leaf(const std::vector<CpuidEntry>& entries, std::uint32_t function, std::uint32_t index = 0) {
  const auto found =
      std::ranges::find_if(entries, [&](const CpuidEntry& e) { return e.function == function && e.index == index; });
  static const CpuidEntry kNone{0xdeadbeef, 0, 0, 0, 0, 0, 0};
  if (found == entries.end()) {
    ADD_FAILURE() << "no leaf " << std::hex << function << "." << index;
    return kNone;
  }
  return *found;
}

std::vector<CpuidEntry> of(CpuidEntry vendor, unsigned vcpu, unsigned vcpus) {
  CpuidPolicy policy;
  policy.vcpu = vcpu;
  policy.vcpus = vcpus;
  return guest_cpuid(supported(vendor), policy);
}

TEST(Cpuid, Leaf1NamesTheVcpu) {
  for (const unsigned vcpus : {1U, 2U, 3U, 64U, 255U}) {
    for (const unsigned vcpu : {0U, vcpus - 1}) {
      const auto entries = of(intel(), vcpu, vcpus);
      const CpuidEntry& features = leaf(entries, 1);
      EXPECT_EQ(features.ebx >> 24, vcpu);
      EXPECT_GE(std::min(features.ebx >> 16 & 0xff, 255U), std::min(vcpus, 255U));
      EXPECT_EQ(features.ebx & 0xffff, 0x5678U);
      EXPECT_EQ((features.edx & kHtt) != 0, vcpus > 1);
      EXPECT_NE(features.ecx & kHypervisor, 0U);
      EXPECT_NE(features.ecx & kX2Apic, 0U);
    }
  }
}

TEST(Cpuid, Leaf1IsUnchangedOtherwise) {
  const auto entries = of(intel(), 0, 1);
  const CpuidEntry before = supported(intel())[1];
  const CpuidEntry& after = leaf(entries, 1);
  EXPECT_EQ(after.eax, before.eax);
  EXPECT_EQ((after.ecx ^ before.ecx) & ~(kMonitor | kX2Apic | kDeadline | kHypervisor), 0U);
  EXPECT_EQ((after.edx ^ before.edx) & ~kHtt, 0U);
}

TEST(Cpuid, TscDeadlineIsSetWhenAskedAndOnlyThen) {
  // KVM_GET_SUPPORTED_CPUID never has it.
  CpuidPolicy policy;
  EXPECT_EQ(leaf(guest_cpuid(supported(amd()), policy), 1).ecx & kDeadline, 0U);
  policy.tsc_deadline = true;
  EXPECT_NE(leaf(guest_cpuid(supported(amd()), policy), 1).ecx & kDeadline, 0U);
  std::vector<CpuidEntry> offered = supported(amd());
  offered[1].ecx |= kDeadline;
  policy.tsc_deadline = false;
  EXPECT_EQ(leaf(guest_cpuid(offered, policy), 1).ecx & kDeadline, 0U);
}

TEST(Cpuid, X2ApicAndCx16CanBeMasked) {
  CpuidPolicy policy;
  EXPECT_NE(leaf(guest_cpuid(supported(intel()), policy), 1).ecx & kCx16, 0U);
  policy.mask_cx16 = true;
  policy.x2apic = false;
  const auto entries = guest_cpuid(supported(intel()), policy);
  EXPECT_EQ(leaf(entries, 1).ecx & kCx16, 0U);
  EXPECT_EQ(leaf(entries, 1).ecx & kX2Apic, 0U);
}

TEST(Cpuid, TopologyIsOnePackageOfCores) {
  for (const auto& [vcpus, shift] :
       std::vector<std::pair<unsigned, unsigned>>{{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {64, 6}}) {
    const unsigned vcpu = vcpus - 1;
    const auto entries = of(intel(), vcpu, vcpus);
    EXPECT_EQ(leaf(entries, 0xb, 0), (CpuidEntry{0xb, 0, 1, 0, 1, 0x100, vcpu}));
    EXPECT_EQ(leaf(entries, 0xb, 1), (CpuidEntry{0xb, 1, 1, shift, vcpus, 0x201, vcpu}));
    EXPECT_EQ(leaf(entries, 0xb, 2), (CpuidEntry{0xb, 2, 1, 0, 0, 2, vcpu}));
    EXPECT_EQ(std::ranges::count(entries, 0xbU, &CpuidEntry::function), 3);
    EXPECT_EQ(std::ranges::count(entries, 0x1fU, &CpuidEntry::function), 0);
  }
}

TEST(Cpuid, Leaf1fOnlyWhereTheHostReachesIt) {
  CpuidEntry vendor = intel();
  vendor.eax = 0x20;
  std::vector<CpuidEntry> offered = supported(vendor);
  offered.push_back({0x1f, 0, 1, 1, 2, 3, 4});
  CpuidPolicy policy;
  policy.vcpu = 1;
  policy.vcpus = 2;
  const auto entries = guest_cpuid(offered, policy);
  EXPECT_EQ(leaf(entries, 0x1f, 1), (CpuidEntry{0x1f, 1, 1, 1, 2, 0x201, 1}));
  EXPECT_EQ(std::ranges::count(entries, 0x1fU, &CpuidEntry::function), 3);
}

TEST(Cpuid, LeafBIsInReach) {
  CpuidEntry vendor = amd();
  vendor.eax = 1;
  EXPECT_EQ(leaf(of(vendor, 0, 2), 0).eax, 0xbU);
  EXPECT_EQ(leaf(of(amd(), 0, 2), 0).eax, 0x10U);
}

TEST(Cpuid, Leaf4HasTheCoresAndWhoSharesTheCaches) {
  const auto entries = of(intel(), 0, 3);
  for (const std::uint32_t index : {0U, 1U}) {
    EXPECT_EQ(leaf(entries, 4, index).eax >> 14 & 0xfff, 0U);  // L1, L2: one vCPU
    EXPECT_EQ(leaf(entries, 4, index).eax >> 26, 3U);          // ids for 4 cores
  }
  EXPECT_EQ(leaf(entries, 4, 2).eax >> 14 & 0xfff, 3U);  // L3: all
  EXPECT_EQ(leaf(entries, 4, 2).eax & 0x3fff, 0x163U & 0x3fff);
  EXPECT_EQ(leaf(entries, 4, 3), (CpuidEntry{4, 3, 1, 0, 0, 0, 0}));  // the end stays the end
  EXPECT_EQ(leaf(of(intel(), 0, 64), 4, 0).eax >> 26, 63U);
  EXPECT_EQ(leaf(of(intel(), 0, 1), 4, 2).eax >> 14, 0U);
}

TEST(Cpuid, AmdLeaves) {
  const auto entries = of(amd(), 2, 3);
  EXPECT_EQ(leaf(entries, 0x80000008).ecx, 2U | 2U << 12);  // cores - 1, bits of an APIC id
  EXPECT_EQ(leaf(entries, 0x80000008).eax, 0x3039U);
  EXPECT_EQ(leaf(entries, 0x8000001e), (CpuidEntry{0x8000001e, 0, 0, 2, 2, 0, 0}));
  EXPECT_EQ(leaf(entries, 0x8000001d, 0).eax >> 14, 0U);
  EXPECT_EQ(leaf(entries, 0x8000001d, 3).eax >> 14, 2U);
  EXPECT_NE(leaf(entries, 0x80000001).ecx & 2, 0U);  // CmpLegacy
  EXPECT_EQ(leaf(of(amd(), 0, 1), 0x80000001).ecx & 2, 0U);
  EXPECT_EQ(leaf(of(amd(), 0, 1), 0x80000008).ecx, 0U);
}

TEST(Cpuid, IntelKeepsWhatOnlyAmdDefines) {
  const auto entries = of(intel(), 2, 3);
  EXPECT_EQ(leaf(entries, 0x80000008).ecx, 0U);
  EXPECT_EQ(leaf(entries, 0x80000001), supported(intel())[14]);
  EXPECT_EQ(leaf(entries, 0x8000001e), supported(intel()).back());
}

TEST(Cpuid, AmdsNewerTopologyLeafIsLeftOut) {
  std::vector<CpuidEntry> offered = supported(amd());
  offered.push_back({0x80000026, 0, 1, 1, 2, 0x100, 7});
  EXPECT_EQ(std::ranges::count(guest_cpuid(offered, {}), 0x80000026U, &CpuidEntry::function), 0);
}

TEST(Cpuid, MwaitIsMaskedUnlessGranted) {
  std::vector<CpuidEntry> offered = supported(intel());
  offered[1].ecx |= kMonitor;
  offered[6] = {5, 0, 0, 64, 64, 3, 0x2120};
  CpuidPolicy policy;
  auto entries = guest_cpuid(offered, policy);
  EXPECT_EQ(leaf(entries, 1).ecx & kMonitor, 0U);
  EXPECT_EQ(leaf(entries, 5), (CpuidEntry{5, 0, 0, 0, 0, 0, 0}));
  policy.mwait = MwaitPolicy::kGrant;
  entries = guest_cpuid(offered, policy);
  EXPECT_NE(leaf(entries, 1).ecx & kMonitor, 0U);
  EXPECT_EQ(leaf(entries, 5), (CpuidEntry{5, 0, 0, 64, 64, 3, 0x2120}));  // the host's own is kept
}

TEST(Cpuid, GrantedMwaitHasALeaf5) {
  CpuidPolicy policy;
  policy.mwait = MwaitPolicy::kGrant;
  std::vector<CpuidEntry> offered = supported(amd());
  const CpuidEntry made{5, 0, 0, 64, 64, 3, 0x10};  // C1, extensions enumerated
  EXPECT_EQ(leaf(guest_cpuid(offered, policy), 5), made);
  std::erase_if(offered, [](const CpuidEntry& e) { return e.function == 5; });
  const auto entries = guest_cpuid(offered, policy);
  EXPECT_EQ(leaf(entries, 5), made);
  EXPECT_EQ(std::ranges::count(entries, 5U, &CpuidEntry::function), 1);
}

TEST(Cpuid, KvmFeaturesThatNeedItsApicAreMaskedWithoutIt) {
  const std::uint32_t all = supported(amd())[12].eax;
  CpuidPolicy policy;
  EXPECT_EQ(leaf(guest_cpuid(supported(amd()), policy), 0x40000001).eax, all);
  policy.kernel_irqchip = false;
  const std::uint32_t masked = leaf(guest_cpuid(supported(amd()), policy), 0x40000001).eax;
  for (const unsigned bit : {4U, 6U, 7U, 10U, 11U, 12U, 13U, 14U, 15U}) EXPECT_EQ(masked >> bit & 1, 0U) << bit;
  for (const unsigned bit : {0U, 1U, 3U, 5U, 9U, 24U}) EXPECT_EQ(masked >> bit & 1, all >> bit & 1) << bit;
}

TEST(Cpuid, KvmSignatureStaysAndTheHintIsByPolicy) {
  CpuidPolicy policy;
  auto entries = guest_cpuid(supported(amd()), policy);
  EXPECT_EQ(leaf(entries, 0x40000000), supported(amd())[11]);
  EXPECT_EQ(leaf(entries, 0x40000001).edx, 0U);
  policy.hint_realtime = true;
  EXPECT_EQ(leaf(guest_cpuid(supported(amd()), policy), 0x40000001).edx, 1U);
}

TEST(Cpuid, OtherLeavesPassUnchanged) {
  for (const CpuidEntry& vendor : {intel(), amd()}) {
    const auto before = supported(vendor);
    const auto after = of(vendor, 1, 4);
    for (const std::uint32_t function : {6U, 7U, 0xdU, 0x40000000U, 0x80000000U}) {
      EXPECT_EQ(leaf(after, function), leaf(before, function)) << std::hex << function;
    }
    EXPECT_EQ(after.size(), before.size() - 1 + 3);
  }
}

}  // namespace
}  // namespace vmm::boot::test
