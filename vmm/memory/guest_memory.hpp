// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/mapping.hpp"

namespace vmm::memory {

// A range of guest-physical RAM. `host_offset` is its place in the one host mapping behind all RAM.
struct Region {
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint64_t host_offset;
  bool operator==(const Region&) const = default;
};

// The RAM of a guest of `memory_bytes`: one region, or two around the hole below 4 GiB (layout.hpp). Pure.
std::vector<Region> ram_regions(std::uint64_t memory_bytes);

// True when [address, address + bytes) lies within one region; false for a wrap-around. Pure.
bool inside(std::span<const Region> regions, std::uint64_t address, std::uint64_t bytes) noexcept;

// The guest's RAM, and the only way to it. Zero and not backed by host memory until touched; excluded from core dumps.
class GuestMemory {
 public:
  // `memory_bytes`: a multiple of the page size within layout.hpp's limits, else BadInput. Throws SystemError when the
  // host refuses the mapping.
  explicit GuestMemory(std::uint64_t memory_bytes);

  std::uint64_t size_bytes() const noexcept { return mapping_.size(); }
  std::span<const Region> regions() const noexcept { return regions_; }
  // The host address behind a region, for KVM_SET_USER_MEMORY_REGION.
  std::byte* host_address(const Region& region) const noexcept { return mapping_.data() + region.host_offset; }

  // [address, address + bytes) of RAM; an empty span when any of it is not RAM.
  std::span<std::byte> at(std::uint64_t address, std::uint64_t bytes) const noexcept;
  // The same, but a range outside RAM is a BadInput that names `what`.
  std::span<std::byte> require(std::uint64_t address, std::uint64_t bytes, const char* what) const;

  void write(std::uint64_t address, std::span<const std::byte> bytes, const char* what) const;

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void write_object(std::uint64_t address, const T& object, const char* what) const {
    write(address, std::as_bytes(std::span(&object, 1)), what);
  }

 private:
  base::Mapping mapping_;
  std::vector<Region> regions_;
};

}  // namespace vmm::memory
