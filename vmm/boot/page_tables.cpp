// SPDX-License-Identifier: Apache-2.0
#include "boot/page_tables.hpp"

#include <cstdint>
#include <span>

#include "memory/layout.hpp"

namespace vmm::boot {
namespace {

namespace layout = memory::layout;

// SDM vol. 3, tables 4-15 to 4-18.
constexpr std::uint64_t kPresentWritable = 0x3;
constexpr std::uint64_t kUncached = 0x18;  // PWT, PCD
constexpr std::uint64_t kLargePage = 0x80;
constexpr std::uint64_t kLargePageBytes = 2 * layout::kMiB;
constexpr std::size_t kEntries = 512;
constexpr std::size_t kDirectories = 4;

static_assert(layout::kPdpt == layout::kPml4 + layout::kPageBytes);
static_assert(layout::kPageDirectories == layout::kPdpt + layout::kPageBytes);

}  // namespace

std::vector<std::byte> identity_page_tables() {
  std::vector<std::uint64_t> tables((2 + kDirectories) * kEntries);
  tables[0] = layout::kPdpt | kPresentWritable;
  const std::span<std::uint64_t> pdpt = std::span(tables).subspan(kEntries, kEntries);
  const std::span<std::uint64_t> directories = std::span(tables).subspan(2 * kEntries);
  for (std::size_t i = 0; i < kDirectories; ++i) {
    pdpt[i] = (layout::kPageDirectories + i * layout::kPageBytes) | kPresentWritable;
  }
  for (std::size_t i = 0; i < directories.size(); ++i) {
    const std::uint64_t address = i * kLargePageBytes;
    directories[i] = address | kPresentWritable | kLargePage | (address >= layout::kIoApic ? kUncached : 0);
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(tables));
  return {bytes.begin(), bytes.end()};
}

}  // namespace vmm::boot
