// SPDX-License-Identifier: Apache-2.0
#include "boot/tables.hpp"

#include <cstring>

#include "memory/layout.hpp"

namespace vmm::boot {
namespace {

namespace layout = memory::layout;

// Page table entry bits (SDM vol. 3, table 4-15 and on).
constexpr std::uint64_t kPresent = 1U << 0;
constexpr std::uint64_t kWritable = 1U << 1;
constexpr std::uint64_t kWriteThrough = 1U << 3;
constexpr std::uint64_t kCacheDisable = 1U << 4;
constexpr std::uint64_t kLargePage = 1U << 7;
// Present, ring 0, execute/read, accessed, long, 4 KiB granular.
constexpr std::uint64_t kCode = 0x00af9b000000ffff;
constexpr std::uint64_t kLargePageBytes = 2 * layout::kMiB;
constexpr std::size_t kEntries = 512;
constexpr std::size_t kDirectories = 4;

}  // namespace

std::array<std::uint64_t, 6> flat_gdt() {
  return {
      0,
      kCode,               // for payloads
      kCode,               // for Linux
      0x00cf93000000ffff,  // data: present, ring 0, read/write, accessed, 32 bit, 4 KiB granular
      0x00008b0000000067,  // busy 64-bit TSS of 0x68 bytes at 0: never used, but must be there
      0,
  };
}

std::vector<std::byte> identity_page_tables() {
  std::vector<std::uint64_t> entries((2 + kDirectories) * kEntries);
  entries[0] = layout::kPdpt | kPresent | kWritable;
  for (std::size_t directory = 0; directory < kDirectories; ++directory) {
    entries[kEntries + directory] = (layout::kPageDirectories + directory * layout::kPageBytes) | kPresent | kWritable;
    for (std::size_t page = 0; page < kEntries; ++page) {
      const std::uint64_t address = directory * layout::kGiB + page * kLargePageBytes;
      const std::uint64_t cache = address >= layout::kHoleStart ? kWriteThrough | kCacheDisable : 0;
      entries[(2 + directory) * kEntries + page] = address | kPresent | kWritable | kLargePage | cache;
    }
  }
  std::vector<std::byte> bytes(entries.size() * sizeof(std::uint64_t));
  std::memcpy(bytes.data(), entries.data(), bytes.size());
  return bytes;
}

}  // namespace vmm::boot
