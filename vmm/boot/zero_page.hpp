// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <asm/bootparam.h>
#include <cstdint>
#include <optional>
#include <span>

#include "boot/e820.hpp"
#include "boot/initrd.hpp"
#include "boot/kernel_image.hpp"

namespace vmm::boot {

// What a kernel is told at its entry, by whatever protocol.
struct BootInfo {
  std::uint64_t command_line_address = 0;
  std::optional<InitrdPlace> initrd;
  std::uint64_t rsdp_address = 0;
  std::span<const E820Entry> memory_map;
};

// The zero page of the 64-bit boot protocol (boot.rst, zero-page.rst): zeros, the kernel's setup header and nothing
// else of its first sector, and what a boot loader fills in. For an ELF vmlinux the header is made up. Pure.
boot_params make_zero_page(const KernelImage& kernel, const BootInfo& info);

}  // namespace vmm::boot
