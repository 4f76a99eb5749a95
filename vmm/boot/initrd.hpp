// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "boot/e820.hpp"
#include "boot/kernel_image.hpp"

namespace vmm::boot {

struct InitrdPlace {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  bool operator==(const InitrdPlace&) const = default;
};

// Where an initrd of `bytes` goes: page-aligned, as high as the kernel's initrd_addr_max, the RAM below the hole and
// the kernel's own memory allow (high, so that a kernel that moves or unpacks itself has room). Throws BadInput with
// the limits when there is no such place, or the file is empty. Pure.
InitrdPlace place_initrd(std::uint64_t bytes, const KernelImage& kernel, std::span<const E820Entry> map);

}  // namespace vmm::boot
