// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vmm::boot {

// Bytes that the VMM made, and where they go.
struct Blob {
  std::uint64_t address;  // guest-physical
  std::vector<std::byte> bytes;
  const char* name;  // a literal, for messages
};

}  // namespace vmm::boot
