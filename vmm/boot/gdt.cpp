// SPDX-License-Identifier: Apache-2.0
#include "boot/gdt.hpp"

#include <span>

namespace vmm::boot {
namespace {

// Descriptors with base 0, as SDM vol. 3, figure 3-8 lays them out. The accessed bit is set: nobody may write it.
constexpr std::uint64_t kCode64 = 0x00af'9b00'0000'ffff;   // execute/read, L, G, limit 4 GiB
constexpr std::uint64_t kCode32 = 0x00cf'9b00'0000'ffff;   // execute/read, D, G
constexpr std::uint64_t kData = 0x00cf'9300'0000'ffff;     // read/write, B, G
constexpr std::uint64_t kBusyTss = 0x0000'8b00'0000'0067;  // 0x68 bytes; its upper half is 0

}  // namespace

Gdt Gdt::linux64() {
  Gdt gdt;
  gdt.entries_[kLinux64Code / 8] = kCode64;
  gdt.entries_[kLinux64Data / 8] = kData;
  gdt.entries_[kLinux64Tss / 8] = kBusyTss;
  return gdt;
}

Gdt Gdt::pvh() {
  Gdt gdt;
  gdt.entries_[kPvhCode / 8] = kCode32;
  gdt.entries_[kPvhData / 8] = kData;
  gdt.entries_[kPvhTss / 8] = kBusyTss;
  return gdt;
}

Gdt Gdt::payload() {
  Gdt gdt;
  gdt.entries_[kPayloadCode / 8] = kCode64;
  gdt.entries_[kPayloadData / 8] = kData;
  gdt.entries_[kPayloadTss / 8] = kBusyTss;
  return gdt;
}

std::vector<std::byte> Gdt::bytes() const {
  const std::span<const std::byte> view = std::as_bytes(std::span(entries_));
  return {view.begin(), view.end()};
}

SegmentState Gdt::segment(std::uint16_t selector) const {
  const std::uint64_t entry = entries_.at(selector / 8);
  const auto bits = [entry](unsigned shift, unsigned count) { return entry >> shift & ((1ULL << count) - 1); };
  SegmentState state;
  state.base = bits(16, 24) | bits(56, 8) << 24;
  state.granularity = bits(55, 1) != 0;
  const std::uint64_t limit = bits(0, 16) | bits(48, 4) << 16;
  state.limit = static_cast<std::uint32_t>(state.granularity ? limit << 12 | 0xfff : limit);
  state.selector = selector;
  state.type = static_cast<std::uint8_t>(bits(40, 4));
  state.code_or_data = bits(44, 1) != 0;
  state.privilege = static_cast<std::uint8_t>(bits(45, 2));
  state.present = bits(47, 1) != 0;
  state.long_mode = bits(53, 1) != 0;
  state.default_big = bits(54, 1) != 0;
  return state;
}

}  // namespace vmm::boot
