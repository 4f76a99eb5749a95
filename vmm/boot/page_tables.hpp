// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace vmm::boot {

// Identity map of the first 4 GiB in pages of 2 MiB, all writable: PML4, PDPT and four page directories, six pages from
// layout::kPml4 on. From the I/O APIC's page to 4 GiB it is uncached (PCD and PWT): devices (SDM vol. 3, 4.9.2).
std::vector<std::byte> identity_page_tables();

}  // namespace vmm::boot
