// SPDX-License-Identifier: Apache-2.0
// The small tables a vCPU needs before the guest makes its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vmm::boot {

// Selectors in the flat GDT: those that the 64-bit boot protocol asks for (boot.rst, "64-bit Boot Protocol").
inline constexpr std::uint16_t kPayloadCodeSelector = 0x08;
inline constexpr std::uint16_t kCodeSelector = 0x10;
inline constexpr std::uint16_t kDataSelector = 0x18;
inline constexpr std::uint16_t kTaskSelector = 0x20;

// Null, 64-bit code twice, data, and a TSS of two slots (SDM vol. 3, 3.4.5 and 8.2.3).
std::array<std::uint64_t, 6> flat_gdt();

// PML4, PDPT and four page directories, six pages to be put at layout::kPml4: identity map of the first 4 GiB in pages
// of 2 MiB. The hole's last GiB is uncached (PCD | PWT), since the APICs live there.
std::vector<std::byte> identity_page_tables();

}  // namespace vmm::boot
