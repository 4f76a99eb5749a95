// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/guest_memory.hpp"

namespace vmm::boot {

// Types of ACPI 6.5, table 15.6; the same numbers in E820 and in PVH's memory map.
enum class E820Type : std::uint32_t { kRam = 1, kReserved = 2 };

struct E820Entry {
  std::uint64_t address;
  std::uint64_t bytes;
  E820Type type;
  bool operator==(const E820Entry&) const = default;
};

// The memory map of a guest with this RAM, ascending and disjoint: RAM to the EBDA, the EBDA and the ACPI area
// reserved, RAM from 1 MiB to the hole, KVM's own pages below 4 GiB reserved, RAM above. What is in no entry is a hole.
// Pure.
std::vector<E820Entry> e820_map(std::span<const memory::Region> ram);

// True when [address, address + bytes) lies within one RAM entry; false for a wrap-around.
bool usable(std::span<const E820Entry> map, std::uint64_t address, std::uint64_t bytes) noexcept;

}  // namespace vmm::boot
