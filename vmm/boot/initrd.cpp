// SPDX-License-Identifier: Apache-2.0
#include "boot/initrd.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "base/error.hpp"
#include "memory/layout.hpp"

namespace vmm::boot {
namespace {

namespace layout = memory::layout;

// The highest page-aligned address in [begin, end) at which `bytes` lie clear of the kernel's segments.
std::optional<std::uint64_t> highest_place(std::uint64_t bytes, std::uint64_t begin, std::uint64_t end,
                                           std::span<const ImageSegment> segments) {
  // The segments are ascending and disjoint: going down, each one met lowers the ceiling to its own start.
  for (auto segment = segments.rbegin();; ++segment) {
    if (end < begin || end - begin < bytes) return std::nullopt;
    const std::uint64_t address = (end - bytes) & ~(layout::kPageBytes - 1);
    if (address < begin) return std::nullopt;
    while (segment != segments.rend() && segment->address >= address + bytes) ++segment;
    if (segment == segments.rend() || segment->address + segment->memory_bytes <= address) return address;
    end = segment->address;
  }
}

}  // namespace

InitrdPlace place_initrd(std::uint64_t bytes, const KernelImage& kernel, std::span<const E820Entry> map) {
  if (bytes == 0) {
    throw base::BadInput("--initrd: the file is empty; leave the option out for a guest without initrd");
  }
  const std::uint64_t highest = std::min(kernel.initrd_addr_max, layout::kHoleStart - 1);
  std::optional<std::uint64_t> best;
  std::uint64_t ram_end = 0;
  for (const E820Entry& entry : map) {
    if (entry.type != E820Type::kRam || entry.address < layout::kHighMemory || entry.address > highest) continue;
    ram_end = entry.address + entry.bytes;
    const auto place = highest_place(bytes, entry.address, std::min(ram_end, highest + 1), kernel.segments);
    if (place) best = place;
  }
  if (!best) {
    const ImageSegment& last = kernel.segments.back();
    throw base::BadInput(
        fmt::format("--initrd: {} bytes do not fit: the kernel needs memory up to {:#x}, takes an initrd up to {:#x} "
                    "(initrd_addr_max), and RAM for it ends at {:#x}; a smaller initrd{} would work",
                    bytes, last.address + last.memory_bytes, kernel.initrd_addr_max,
                    std::min(ram_end, layout::kHoleStart), ram_end <= highest ? " or a larger --memory" : ""));
  }
  return {*best, bytes};
}

}  // namespace vmm::boot
