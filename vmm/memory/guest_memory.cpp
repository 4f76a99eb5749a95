// SPDX-License-Identifier: Apache-2.0
#include "memory/guest_memory.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <sys/mman.h>

#include "base/error.hpp"
#include "base/parse.hpp"
#include "memory/layout.hpp"

namespace vmm::memory {

std::vector<Region> ram_regions(std::uint64_t memory_bytes) {
  const std::uint64_t below = std::min(memory_bytes, layout::kHoleStart);
  std::vector<Region> regions{{0, below, 0}};
  if (memory_bytes > below) regions.push_back({layout::kHoleEnd, memory_bytes - below, below});
  return regions;
}

bool inside(std::span<const Region> regions, std::uint64_t address, std::uint64_t bytes) noexcept {
  return std::ranges::any_of(regions, [&](const Region& region) {
    // Written so that no sum can wrap: the distances are compared, not the ends.
    return address >= region.address && address - region.address <= region.bytes &&
           bytes <= region.bytes - (address - region.address);
  });
}

GuestMemory::GuestMemory(std::uint64_t memory_bytes) {
  if (memory_bytes < layout::kMemoryMinimum || memory_bytes > layout::kMemoryMaximum ||
      memory_bytes % layout::kPageBytes != 0) {
    throw base::BadInput(fmt::format(
        "--memory: {} is not a multiple of 4K from {} to {}; 256M works", base::format_size_bytes(memory_bytes),
        base::format_size_bytes(layout::kMemoryMinimum), base::format_size_bytes(layout::kMemoryMaximum)));
  }
  mapping_ = base::Mapping::anonymous(memory_bytes);
  // Best effort: a kernel without the advice only makes larger core files.
  (void)::madvise(mapping_.data(), mapping_.size(), MADV_DONTDUMP);
  regions_ = ram_regions(memory_bytes);
}

std::span<std::byte> GuestMemory::at(std::uint64_t address, std::uint64_t bytes) const noexcept {
  for (const Region& region : regions_) {
    if (inside(std::span(&region, 1), address, bytes)) {
      return {host_address(region) + (address - region.address), bytes};
    }
  }
  return {};
}

std::span<std::byte> GuestMemory::require(std::uint64_t address, std::uint64_t bytes, const char* what) const {
  if (!inside(regions_, address, bytes)) {
    throw base::BadInput(
        fmt::format("{}: {} bytes at guest-physical {:#x} do not lie in the guest's {} of RAM; a larger "
                    "--memory may work",
                    what, bytes, address, base::format_size_bytes(size_bytes())));
  }
  return at(address, bytes);
}

void GuestMemory::write(std::uint64_t address, std::span<const std::byte> bytes, const char* what) const {
  const std::span<std::byte> target = require(address, bytes.size(), what);
  if (!bytes.empty()) std::memcpy(target.data(), bytes.data(), bytes.size());
}

}  // namespace vmm::memory
