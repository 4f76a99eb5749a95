// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "boot/blob.hpp"

namespace vmm::boot {

// The ACPI tables of a guest (ACPI 6.5): RSDP first, at layout::kAcpiTables, then FACS, XSDT, FADT, MADT and DSDT.
// They tell of `vcpus` processors whose APIC ids are 0, 1, …, of one I/O APIC whose pin n is GSI n, of the SCI (level,
// active high), of S5 and a reset register, and of COM1: enough for a stock kernel to bring up all vCPUs and to power
// off. Not hardware-reduced; in ACPI mode from the start. Pure. `vcpus`: 1 to layout::kVcpusMaximum.
std::vector<Blob> acpi_tables(unsigned vcpus);

}  // namespace vmm::boot
