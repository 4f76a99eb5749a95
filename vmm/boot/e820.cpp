// SPDX-License-Identifier: Apache-2.0
#include "boot/e820.hpp"

#include <algorithm>

#include "memory/layout.hpp"

namespace vmm::boot {
namespace {

namespace layout = memory::layout;

constexpr std::uint64_t kVideoMemory = 0xa0000;
// The identity page table and the three pages of the TSS (layout.hpp).
constexpr std::uint64_t kKvmPagesBytes = layout::kTss + 3 * layout::kPageBytes - layout::kIdentityMap;

void add_ram(std::vector<E820Entry>& map, std::uint64_t begin, std::uint64_t end) {
  if (begin < end) map.push_back({begin, end - begin, E820Type::kRam});
}

}  // namespace

std::vector<E820Entry> e820_map(std::span<const memory::Region> ram) {
  std::vector<E820Entry> map;
  for (const memory::Region& region : ram) {
    const std::uint64_t end = region.address + region.bytes;
    add_ram(map, region.address, std::min(end, layout::kLowMemoryEnd));
    add_ram(map, std::max(region.address, layout::kHighMemory), end);
  }
  map.push_back({layout::kLowMemoryEnd, kVideoMemory - layout::kLowMemoryEnd, E820Type::kReserved});
  map.push_back({layout::kAcpiTables, layout::kAcpiTablesEnd - layout::kAcpiTables, E820Type::kReserved});
  map.push_back({layout::kIdentityMap, kKvmPagesBytes, E820Type::kReserved});
  std::ranges::sort(map, {}, &E820Entry::address);
  return map;
}

bool usable(std::span<const E820Entry> map, std::uint64_t address, std::uint64_t bytes) noexcept {
  return std::ranges::any_of(map, [&](const E820Entry& entry) {
    return entry.type == E820Type::kRam && address >= entry.address && address - entry.address <= entry.bytes &&
           bytes <= entry.bytes - (address - entry.address);
  });
}

}  // namespace vmm::boot
