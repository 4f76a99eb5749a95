// SPDX-License-Identifier: Apache-2.0
#include "boot/kernel_image.hpp"

#include <algorithm>
#include <array>
#include <asm/bootparam.h>
#include <cstring>
#include <elf.h>
#include <fmt/format.h>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "boot/linux_abi.hpp"
#include "memory/layout.hpp"

namespace vmm::boot {
namespace {

namespace layout = memory::layout;
using namespace linux_abi;

// Bounds of what is believed of a file: a real vmlinux has about 5 program headers and 1 KiB of notes.
constexpr std::uint64_t kProgramHeadersMaximum = 128;
constexpr std::uint64_t kNoteBytesMaximum = 64 * layout::kKiB;
constexpr std::uint32_t kXenNotePhys32Entry = 18;  // XEN_ELFNOTE_PHYS32_ENTRY, Xen's public/elfnote.h
constexpr std::string_view kXenNoteName{"Xen\0", 4};

struct Magic {
  std::string_view bytes;
  std::string_view name;
  std::string_view remedy;
};
using namespace std::string_view_literals;
// What a kernel may be wrapped in, by first bytes.
constexpr std::array<Magic, 7> kCompressions{{{"\x1f\x8b"sv, "gzip", "gzip -dc"},
                                              {"\x28\xb5\x2f\xfd"sv, "zstd", "zstd -dc"},
                                              {"\xfd"
                                               "7zXZ\0"sv,
                                               "xz", "xz -dc"},
                                              {"\x02\x21\x4c\x18"sv, "lz4", "lz4 -dc"},
                                              {"\x04\x22\x4d\x18"sv, "lz4", "lz4 -dc"},
                                              {"BZh"sv, "bzip2", "bzip2 -dc"},
                                              {"\x89LZO"sv, "lzo", "lzop -dc"}}};

[[noreturn]] void fail(const ByteSource& source, const std::string& name, const std::string& what) {
  throw base::BadInput(fmt::format("{}: '{}' {}", source.option(), name, what));
}

// The sum, or no value when it wraps.
std::optional<std::uint64_t> sum(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <typename T>
T read_object(const ByteSource& source, std::uint64_t offset) {
  T object{};
  source.read(offset, std::as_writable_bytes(std::span(&object, 1)));
  return object;
}

// ---- bzImage ----

bool looks_like_bzimage(const ByteSource& source) {
  return source.contains(kHeaderMagic, sizeof(std::uint32_t)) &&
         read_object<std::uint32_t>(source, kHeaderMagic) == kHeaderMagicValue &&
         read_object<std::uint16_t>(source, kBootFlag) == kBootFlagValue;
}

KernelImage inspect_bzimage(const ByteSource& source, const std::string& name) {
  const std::uint64_t header_end = kHeaderMagic + read_object<std::uint8_t>(source, kJumpOffset);
  if (!source.contains(0, header_end)) {
    fail(source, name,
         fmt::format("ends at byte {}, within the setup header of a bzImage ({} bytes); is it cut off?",
                     source.size_bytes(), header_end));
  }
  // A newer kernel's header may be longer than what this struct knows: the rest is carried along.
  const std::uint64_t header_bytes = std::min(header_end, kSetupHeaderEnd) - kSetupHeader;
  std::vector<std::byte> raw(header_bytes);
  source.read(kSetupHeader, raw);
  setup_header header{};
  std::memcpy(&header, raw.data(), std::min(raw.size(), sizeof header));

  if (header.version < kVersion64BitEntry) {
    fail(source, name,
         fmt::format("is a bzImage of boot protocol {}.{:02}; 2.12 or later is needed (Linux 3.8)", header.version >> 8,
                     header.version & 0xff));
  }
  constexpr std::uint64_t kNeeded = offsetof(setup_header, init_size) + sizeof header.init_size;
  if (header_bytes < kNeeded) {
    fail(source, name,
         fmt::format("says that its setup header has {} bytes; protocol {}.{:02} has {} or more: it is damaged",
                     header_bytes, header.version >> 8, header.version & 0xff, kNeeded));
  }
  if ((header.xloadflags & XLF_KERNEL_64) == 0) {
    fail(source, name,
         fmt::format("is a 32-bit kernel (xloadflags {:#x} has no XLF_KERNEL_64); a kernel for x86-64 is needed",
                     std::uint16_t{header.xloadflags}));
  }
  if ((header.loadflags & LOADED_HIGH) == 0) {
    fail(source, name,
         fmt::format("is a zImage (loadflags {:#x} has no LOADED_HIGH); a bzImage is needed",
                     std::uint8_t{header.loadflags}));
  }

  const std::uint64_t setup_sectors = header.setup_sects == 0 ? kDefaultSetupSectors : header.setup_sects;
  const std::uint64_t payload_offset = (setup_sectors + 1) * kSectorBytes;
  const std::uint64_t payload_bytes = std::uint64_t{header.syssize} * kParagraphBytes;
  if (payload_bytes <= kEntry64Offset) {
    fail(source, name,
         fmt::format("says that its kernel has {} bytes (syssize {:#x}); the 64-bit entry lies at byte {}: it is "
                     "damaged",
                     payload_bytes, std::uint32_t{header.syssize}, kEntry64Offset));
  }
  if (!source.contains(payload_offset, payload_bytes)) {
    fail(source, name,
         fmt::format("has {} bytes, but its header asks for {} (setup_sects {}, syssize {:#x}); is it cut off?",
                     source.size_bytes(), payload_offset + payload_bytes, header.setup_sects,
                     std::uint32_t{header.syssize}));
  }

  // The kernel runs at pref_address whether it is loaded there or lower (boot.rst, "init_size"), so that is where it
  // is put. Only a kernel without a preference gets the lowest address of its alignment.
  const std::uint64_t alignment = header.relocatable_kernel != 0 ? header.kernel_alignment : 1;
  std::uint64_t address = header.pref_address;
  if (address < layout::kHighMemory) {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
      fail(source, name,
           fmt::format("has a kernel_alignment of {:#x}, which is no power of two: it is damaged", alignment));
    }
    address = (layout::kHighMemory + alignment - 1) & ~(alignment - 1);
  }
  const std::uint64_t memory_bytes = std::max<std::uint64_t>(header.init_size, payload_bytes);
  if (!sum(address, memory_bytes)) {
    fail(source, name,
         fmt::format("wants {:#x} bytes at address {:#x} (init_size, pref_address), beyond the end of the address "
                     "space: it is damaged",
                     memory_bytes, address));
  }

  KernelImage image;
  image.option = source.option();
  image.name = name;
  image.protocol = BootProtocol::kLinux64;
  image.segments.push_back({payload_offset, payload_bytes, address, memory_bytes});
  image.entry = address + kEntry64Offset;
  image.initrd_addr_max = header.initrd_addr_max;
  // 0 is how kernels before 2.06 would say 255 (boot.rst, "cmdline_size").
  image.command_line_capacity = header.cmdline_size == 0 ? 255 : header.cmdline_size;
  image.setup_header = std::move(raw);
  return image;
}

// ---- ELF ----

bool looks_like_elf(const ByteSource& source) {
  std::array<char, SELFMAG> magic{};
  if (!source.contains(0, magic.size())) return false;
  source.read(0, std::as_writable_bytes(std::span(magic)));
  return std::memcmp(magic.data(), ELFMAG, SELFMAG) == 0;
}

std::vector<Elf64_Phdr> read_program_headers(const ByteSource& source, const std::string& name,
                                             const Elf64_Ehdr& header) {
  if (header.e_phnum == 0 || header.e_phnum > kProgramHeadersMaximum) {
    fail(source, name,
         fmt::format("has {} program headers (e_phnum); 1 to {} are accepted, and one of them must be PT_LOAD",
                     header.e_phnum, kProgramHeadersMaximum));
  }
  if (header.e_phentsize != sizeof(Elf64_Phdr)) {
    fail(source, name,
         fmt::format("has program headers of {} bytes (e_phentsize); ELF64 has {}", header.e_phentsize,
                     sizeof(Elf64_Phdr)));
  }
  std::vector<Elf64_Phdr> headers(header.e_phnum);
  const std::span<std::byte> bytes = std::as_writable_bytes(std::span(headers));
  if (!source.contains(header.e_phoff, bytes.size())) {
    fail(source, name,
         fmt::format("has {} bytes, but its {} program headers would lie at offset {:#x} (e_phoff); is it cut off?",
                     source.size_bytes(), header.e_phnum, header.e_phoff));
  }
  source.read(header.e_phoff, bytes);
  return headers;
}

std::vector<ImageSegment> read_segments(const ByteSource& source, const std::string& name,
                                        std::span<const Elf64_Phdr> headers) {
  std::vector<ImageSegment> segments;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Elf64_Phdr& header = headers[i];
    if (header.p_type != PT_LOAD || header.p_memsz == 0) continue;
    if (header.p_filesz > header.p_memsz) {
      fail(source, name,
           fmt::format("has a segment (program header {}) with {:#x} bytes in the file (p_filesz) but {:#x} in memory "
                       "(p_memsz): it is damaged",
                       i, header.p_filesz, header.p_memsz));
    }
    if (!source.contains(header.p_offset, header.p_filesz)) {
      fail(source, name,
           fmt::format("has {} bytes, but a segment (program header {}) wants {:#x} bytes at offset {:#x} (p_filesz, "
                       "p_offset); is it cut off?",
                       source.size_bytes(), i, header.p_filesz, header.p_offset));
    }
    if (!sum(header.p_paddr, header.p_memsz)) {
      fail(source, name,
           fmt::format("has a segment (program header {}) of {:#x} bytes at address {:#x} (p_memsz, p_paddr), beyond "
                       "the end of the address space: it is damaged",
                       i, header.p_memsz, header.p_paddr));
    }
    segments.push_back({header.p_offset, header.p_filesz, header.p_paddr, header.p_memsz});
  }
  if (segments.empty()) {
    fail(source, name, "has no segment to load (PT_LOAD); an executable for x86-64, such as vmlinux, is needed");
  }
  std::ranges::sort(segments, {}, &ImageSegment::address);
  for (std::size_t i = 1; i < segments.size(); ++i) {
    const ImageSegment& low = segments[i - 1];
    const ImageSegment& high = segments[i];
    if (high.address - low.address < low.memory_bytes) {
      fail(source, name,
           fmt::format("has two segments that overlap in memory: {:#x} bytes at {:#x}, and {:#x} bytes at {:#x}",
                       low.memory_bytes, low.address, high.memory_bytes, high.address));
    }
  }
  return segments;
}

// The description of XEN_ELFNOTE_PHYS32_ENTRY in one PT_NOTE: the 32-bit entry of a PVH kernel. Padding is to 4 bytes,
// or to p_align where that is 8 (GNU property notes).
std::optional<std::uint64_t> find_pvh_entry(std::span<const std::byte> notes, std::uint64_t alignment) {
  const auto padded = [alignment](std::uint64_t bytes) { return (bytes + alignment - 1) & ~(alignment - 1); };
  std::uint64_t at = 0;  // bounded by kNoteBytesMaximum, and sizes by 32 bits: no sum below can wrap
  while (at + sizeof(Elf64_Nhdr) <= notes.size()) {
    Elf64_Nhdr note{};
    std::memcpy(&note, notes.data() + at, sizeof note);
    const std::uint64_t note_name = at + sizeof note;
    const std::uint64_t description = note_name + padded(note.n_namesz);
    if (description + note.n_descsz > notes.size()) return std::nullopt;  // damaged: no note can be found behind it
    if (note.n_type == kXenNotePhys32Entry && note.n_namesz == kXenNoteName.size() &&
        std::memcmp(notes.data() + note_name, kXenNoteName.data(), kXenNoteName.size()) == 0 &&
        (note.n_descsz == sizeof(std::uint32_t) || note.n_descsz == sizeof(std::uint64_t))) {
      std::uint64_t entry = 0;
      std::memcpy(&entry, notes.data() + description, note.n_descsz);
      return entry;
    }
    at = description + padded(note.n_descsz);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> read_pvh_entry(const ByteSource& source, const std::string& name,
                                            std::span<const Elf64_Phdr> headers) {
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Elf64_Phdr& header = headers[i];
    if (header.p_type != PT_NOTE) continue;
    if (header.p_filesz > kNoteBytesMaximum || !source.contains(header.p_offset, header.p_filesz)) {
      fail(source, name,
           fmt::format("has {} bytes, but its notes (program header {}) would have {:#x} bytes at offset {:#x}; at "
                       "most {:#x} within the file are accepted",
                       source.size_bytes(), i, header.p_filesz, header.p_offset, kNoteBytesMaximum));
    }
    std::vector<std::byte> notes(header.p_filesz);
    source.read(header.p_offset, notes);
    if (const auto entry = find_pvh_entry(notes, header.p_align == 8 ? 8 : 4)) return entry;
  }
  return std::nullopt;
}

bool within_segment(std::span<const ImageSegment> segments, std::uint64_t address) {
  return std::ranges::any_of(segments, [address](const ImageSegment& segment) {
    return address >= segment.address && address - segment.address < segment.file_bytes;
  });
}

KernelImage inspect_elf(const ByteSource& source, const std::string& name) {
  if (!source.contains(0, sizeof(Elf64_Ehdr))) {
    fail(source, name,
         fmt::format("ends at byte {}, within the header of an ELF file ({} bytes); is it cut off?",
                     source.size_bytes(), sizeof(Elf64_Ehdr)));
  }
  const auto header = read_object<Elf64_Ehdr>(source, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != EM_X86_64) {
    fail(source, name,
         fmt::format("is an ELF file, but not a 64-bit one for x86-64 (class {}, data {}, machine {}); 2, 1 and {} are "
                     "needed",
                     header.e_ident[EI_CLASS], header.e_ident[EI_DATA], header.e_machine, EM_X86_64));
  }
  if (header.e_type != ET_EXEC) {
    fail(source, name,
         fmt::format("is an ELF file of type {}; an executable at fixed addresses (type {}) is needed: link it with "
                     "-static -no-pie",
                     header.e_type, ET_EXEC));
  }
  const std::vector<Elf64_Phdr> headers = read_program_headers(source, name, header);

  KernelImage image;
  image.option = source.option();
  image.name = name;
  image.segments = read_segments(source, name, headers);
  image.elf_entry = header.e_entry;
  image.initrd_addr_max = kElfInitrdAddrMax;
  image.command_line_capacity = kElfCommandLineCapacity;

  const std::optional<std::uint64_t> pvh_entry = read_pvh_entry(source, name, headers);
  image.protocol = pvh_entry ? BootProtocol::kPvh : BootProtocol::kElf64;
  image.entry = pvh_entry.value_or(header.e_entry);
  // Both entries run with the first 4 GiB in reach: flat 32-bit segments, or our identity map.
  if (image.entry >= 4 * layout::kGiB || !within_segment(image.segments, image.entry)) {
    fail(source, name,
         fmt::format("has its {} at {:#x}, which is not in a loaded segment below 4 GiB (physical addresses count)",
                     pvh_entry ? "PVH entry" : "entry point", image.entry));
  }
  return image;
}

}  // namespace

KernelImage inspect_kernel(const ByteSource& source, const std::string& name) {
  if (looks_like_elf(source)) return inspect_elf(source, name);
  if (looks_like_bzimage(source)) return inspect_bzimage(source, name);

  std::array<char, 8> first{};
  const std::uint64_t first_bytes = std::min<std::uint64_t>(first.size(), source.size_bytes());
  source.read(0, std::as_writable_bytes(std::span(first)).first(first_bytes));
  const std::string_view start(first.data(), first_bytes);
  for (const Magic& compression : kCompressions) {
    if (start.starts_with(compression.bytes)) {
      fail(source, name,
           fmt::format("is compressed with {}; unpack it first: {} FILE > vmlinux", compression.name,
                       compression.remedy));
    }
  }
  std::string hex;
  for (const char c : start) hex += fmt::format("{}{:02x}", hex.empty() ? "" : " ", static_cast<unsigned char>(c));
  fail(source, name,
       fmt::format("is neither a Linux bzImage nor an ELF64 executable for x86-64 ({} bytes, {}); a kernel package's "
                   "/boot/vmlinuz-* or a build's bzImage or vmlinux would work",
                   source.size_bytes(), hex.empty() ? "empty" : "it begins with " + hex));
}

}  // namespace vmm::boot
