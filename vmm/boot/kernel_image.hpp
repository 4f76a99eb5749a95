// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "boot/byte_source.hpp"

namespace vmm::boot {

// How a kernel (or payload) is entered.
enum class BootProtocol {
  kLinux64,  // bzImage, 64-bit entry: 0x200 above the load address (Documentation/arch/x86/boot.rst, "64-bit boot")
  kPvh,      // ELF with the note XEN_ELFNOTE_PHYS32_ENTRY: 32-bit entry (Xen's docs/misc/pvh.pandoc)
  kElf64,    // ELF without it: e_entry in 64-bit mode
};

// A part of the file that becomes guest memory. All sums are known not to wrap; the file has all of its bytes.
struct ImageSegment {
  std::uint64_t file_offset;
  std::uint64_t file_bytes;
  std::uint64_t address;       // guest-physical
  std::uint64_t memory_bytes;  // >= file_bytes; what is beyond the file's bytes is zero, as guest RAM is from the start
  bool operator==(const ImageSegment&) const = default;
};

// What a kernel file says about itself. A plain value; nothing in it is tied to a guest's RAM yet.
struct KernelImage {
  std::string option;  // "--kernel": begins every message
  std::string name;    // the file's path, for messages
  BootProtocol protocol = BootProtocol::kElf64;
  std::vector<ImageSegment> segments;  // ascending by address, disjoint, not empty
  std::uint64_t entry = 0;             // guest-physical, by `protocol`
  std::uint64_t elf_entry = 0;         // e_entry of an ELF file, 0 for a bzImage

  std::uint64_t initrd_addr_max = 0;        // the highest address that a byte of the initrd may have
  std::uint64_t command_line_capacity = 0;  // characters, without the NUL

  // bzImage only: the setup header as it goes to offset 0x1f1 of the zero page, nothing else of the first sector.
  std::vector<std::byte> setup_header;

  bool is_bzimage() const noexcept { return protocol == BootProtocol::kLinux64; }
};

// Decides by content what `source` is. Throws BadInput, one line naming the option, `name`, the field, its value and
// what would work, for anything else than
//  - a bzImage of boot protocol 2.12 or later with a 64-bit entry, or
//  - an ELF64 executable for x86-64 whose segments, program headers and entry point lie where they can.
// Safe on any bytes: no arithmetic wraps, memory use is bounded.
KernelImage inspect_kernel(const ByteSource& source, const std::string& name);

}  // namespace vmm::boot
