// SPDX-License-Identifier: Apache-2.0
#include "boot/kernel_image.hpp"

#include <asm/bootparam.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "base/file.hpp"
#include "memory/layout.hpp"

namespace vmm::boot {
namespace {

using base::BadInput;
namespace layout = memory::layout;

constexpr std::uint64_t kSectorBytes = 512;
constexpr std::size_t kSetupHeaderOffset = 0x1f1;
constexpr std::size_t kSetupHeaderMagicOffset = 0x202;
constexpr std::uint64_t kSetupHeaderEndMaximum = 0x290;  // the zero page has the EDD buffer after it (zero-page.rst)
constexpr std::uint32_t kSetupHeaderMagic = 0x53726448;  // "HdrS"
constexpr std::uint16_t kProtocolMinimum = 0x020c;       // 2.12: xloadflags
constexpr unsigned kSetupSectsDefault = 4;               // boot.rst: "for backwards compatibility, 0 means 4"
constexpr std::uint64_t kEntry64Offset = 0x200;          // boot.rst, "64-bit Boot Protocol"
constexpr std::uint16_t kMachineX86_64 = EM_X86_64;
constexpr std::uint32_t kNotePhys32Entry = 18;  // XEN_ELFNOTE_PHYS32_ENTRY (xen/include/public/elfnote.h)
constexpr std::uint64_t kProgramHeadersMaximum = 256;
constexpr std::uint64_t kNoteBytesMaximum = 1 << 20;

template <typename T>
T read_object(const ByteSource& file, std::uint64_t offset) {
  T object{};
  file.read(offset, std::as_writable_bytes(std::span(&object, 1)));
  return object;
}

// [offset, offset + bytes) lies within `limit` bytes, without wrapping.
bool within(std::uint64_t offset, std::uint64_t bytes, std::uint64_t limit) {
  return offset <= limit && bytes <= limit - offset;
}

// ---- bzImage ----

KernelImage inspect_bzimage(const ByteSource& file, const std::string& name) {
  const auto header = read_object<setup_header>(file, kSetupHeaderOffset);
  if (header.version < kProtocolMinimum) {
    throw BadInput(fmt::format("--kernel: '{}' speaks boot protocol {}.{:02}, 2.12 is needed (Linux 3.8 or later)", name,
                               header.version >> 8, header.version & 0xff));
  }
  if ((header.xloadflags & XLF_KERNEL_64) == 0) {
    throw BadInput(fmt::format("--kernel: '{}' is a bzImage without a 64-bit entry (xloadflags {:#x}); an x86-64 kernel works",
                               name, header.xloadflags));
  }
  const std::uint64_t setup_sectors = header.setup_sects == 0 ? kSetupSectsDefault : header.setup_sects;
  const std::uint64_t kernel_offset = (setup_sectors + 1) * kSectorBytes;
  if (kernel_offset >= file.bytes) {
    throw BadInput(fmt::format("--kernel: '{}' is cut short: {} bytes, but its kernel proper begins at byte {} (setup_sects {}); "
                               "copy it again",
                               name, file.bytes, kernel_offset, header.setup_sects));
  }
  const std::uint64_t kernel_bytes = file.bytes - kernel_offset;
  const std::uint64_t wanted_bytes = std::uint64_t{header.syssize} * 16;
  // The image's own size, in paragraphs; the file may be padded or signed behind it, but not shorter.
  if (wanted_bytes > ((kernel_bytes + 15) & ~15ULL)) {
    throw BadInput(fmt::format("--kernel: '{}' is cut short: {} bytes, {} are needed by its header (syssize); copy it again",
                               name, file.bytes, kernel_offset + wanted_bytes));
  }
  if (kernel_bytes <= kEntry64Offset) {
    throw BadInput(fmt::format("--kernel: '{}' is cut short: its 64-bit entry lies beyond its {} bytes", name, file.bytes));
  }

  KernelImage image;
  image.protocol = Protocol::kLinux64;
  image.name = name;
  image.segments = {{kernel_offset, kernel_bytes, 0, std::max<std::uint64_t>(kernel_bytes, header.init_size)}};
  image.entry = kEntry64Offset;
  // Only the header goes to the zero page, as long as it says it is (boot.rst, "64-bit Boot Protocol"); what else the
  // first sector holds is filler, all ones since 6.1.88.
  const auto jump = read_object<std::uint8_t>(file, kSetupHeaderMagicOffset - 1);
  const std::uint64_t header_end =
      std::min({kSetupHeaderMagicOffset + std::uint64_t{jump}, kSetupHeaderEndMaximum, file.bytes});
  image.setup_header.resize(header_end - kSetupHeaderOffset);
  file.read(kSetupHeaderOffset, image.setup_header);
  image.preferred_address = header.pref_address;
  image.alignment = header.kernel_alignment;
  image.relocatable = header.relocatable_kernel != 0;
  image.initrd_address_maximum = header.initrd_addr_max;
  image.command_line_maximum = header.cmdline_size;
  if (image.relocatable && !std::has_single_bit(image.alignment)) {
    throw BadInput(fmt::format("--kernel: '{}' asks for an alignment of {:#x}, which is no power of two", name, image.alignment));
  }
  if (image.preferred_address < layout::kHighMemory) {
    throw BadInput(fmt::format("--kernel: '{}' prefers address {:#x}, below 1 MiB, where this VMM keeps its tables", name,
                               image.preferred_address));
  }
  return image;
}

// ---- ELF ----

// The 32-bit entry of a PVH note in [offset, offset + bytes) of the file.
std::optional<std::uint64_t> find_pvh_entry(const ByteSource& file, std::uint64_t offset, std::uint64_t bytes,
                                            std::uint64_t alignment) {
  std::vector<std::byte> notes(std::min(bytes, kNoteBytesMaximum));
  file.read(offset, notes);
  const std::uint64_t align = alignment == 8 ? 8 : 4;
  const auto padded = [align](std::uint64_t size) { return (size + align - 1) & ~(align - 1); };
  std::uint64_t at = 0;
  while (within(at, sizeof(Elf64_Nhdr), notes.size())) {
    Elf64_Nhdr note{};
    std::memcpy(&note, notes.data() + at, sizeof note);
    at += sizeof note;
    const std::uint64_t name_at = at;
    const std::uint64_t descriptor_at = at + padded(note.n_namesz);
    if (!within(descriptor_at, note.n_descsz, notes.size())) return std::nullopt;
    constexpr std::string_view kXen{"Xen", 4};
    const bool xen = note.n_namesz == kXen.size() && within(name_at, kXen.size(), notes.size()) &&
                     std::memcmp(notes.data() + name_at, kXen.data(), kXen.size()) == 0;
    if (xen && note.n_type == kNotePhys32Entry && (note.n_descsz == 4 || note.n_descsz == 8)) {
      std::uint64_t entry = 0;
      std::memcpy(&entry, notes.data() + descriptor_at, note.n_descsz);
      return entry;
    }
    at = descriptor_at + padded(note.n_descsz);
  }
  return std::nullopt;
}

KernelImage inspect_elf(const ByteSource& file, const std::string& name) {
  if (file.bytes < sizeof(Elf64_Ehdr)) {
    throw BadInput(fmt::format("--kernel: '{}' is cut short: {} bytes, an ELF header has {}", name, file.bytes, sizeof(Elf64_Ehdr)));
  }
  const auto header = read_object<Elf64_Ehdr>(file, 0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_machine != kMachineX86_64 || header.e_type != ET_EXEC) {
    throw BadInput(fmt::format("--kernel: '{}' is an ELF file, but no static x86-64 executable (class {}, machine {}, type {}); "
                               "a vmlinux works",
                               name, header.e_ident[EI_CLASS], header.e_machine, header.e_type));
  }
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 || header.e_phnum > kProgramHeadersMaximum ||
      !within(header.e_phoff, std::uint64_t{header.e_phnum} * sizeof(Elf64_Phdr), file.bytes)) {
    throw BadInput(fmt::format("--kernel: '{}': the ELF program headers ({} of {} bytes at {:#x}) do not lie in the file of {} bytes",
                               name, header.e_phnum, header.e_phentsize, header.e_phoff, file.bytes));
  }
  KernelImage image;
  image.protocol = Protocol::kElf64;
  image.name = name;
  std::optional<std::uint64_t> pvh_entry;
  std::uint64_t entry_virtual = header.e_entry;
  std::optional<std::uint64_t> entry_physical;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = read_object<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type != PT_LOAD && segment.p_type != PT_NOTE) continue;
    if (!within(segment.p_offset, segment.p_filesz, file.bytes)) {
      throw BadInput(fmt::format("--kernel: '{}': segment {} ({} bytes at {:#x}) does not lie in the file of {} bytes", name, i,
                                 segment.p_filesz, segment.p_offset, file.bytes));
    }
    if (segment.p_type == PT_NOTE) {
      if (!pvh_entry) pvh_entry = find_pvh_entry(file, segment.p_offset, segment.p_filesz, segment.p_align);
      continue;
    }
    if (segment.p_memsz < segment.p_filesz || segment.p_paddr > std::numeric_limits<std::uint64_t>::max() - segment.p_memsz) {
      throw BadInput(fmt::format("--kernel: '{}': segment {} has {} bytes in the file and {} in memory at {:#x}, which cannot be",
                                 name, i, segment.p_filesz, segment.p_memsz, segment.p_paddr));
    }
    if (segment.p_memsz == 0) continue;
    image.segments.push_back({segment.p_offset, segment.p_filesz, segment.p_paddr, segment.p_memsz});
    // The entry is a virtual address in payloads and a physical one in vmlinux: whichever segment has it, in that order.
    if (!entry_physical && entry_virtual >= segment.p_vaddr && entry_virtual - segment.p_vaddr < segment.p_memsz) {
      entry_physical = segment.p_paddr + (entry_virtual - segment.p_vaddr);
    }
  }
  if (image.segments.empty()) throw BadInput(fmt::format("--kernel: '{}' has nothing to load: no PT_LOAD segment", name));
  std::ranges::sort(image.segments, {}, &LoadSegment::address);
  for (std::size_t i = 1; i < image.segments.size(); ++i) {
    const LoadSegment& low = image.segments[i - 1];
    if (image.segments[i].address < low.address + low.memory_bytes) {
      throw BadInput(fmt::format("--kernel: '{}': segments at {:#x} and {:#x} overlap", name, low.address, image.segments[i].address));
    }
  }
  const auto loaded = [&](std::uint64_t address) {
    return std::ranges::any_of(image.segments, [&](const LoadSegment& s) { return address >= s.address && address - s.address < s.memory_bytes; });
  };
  image.entry = pvh_entry ? *pvh_entry : entry_physical.value_or(entry_virtual);
  if (pvh_entry) image.protocol = Protocol::kPvh;
  if (!loaded(image.entry)) {
    throw BadInput(fmt::format("--kernel: '{}': its entry {:#x} lies in no loaded segment", name, image.entry));
  }
  return image;
}

std::string_view compression_of(std::span<const std::byte> magic) {
  struct Magic {
    std::array<unsigned char, 4> bytes;
    std::size_t used;
    std::string_view name;
  };
  static constexpr std::array kMagics = {Magic{{0x1f, 0x8b}, 2, "gzip"}, Magic{{0xfd, '7', 'z', 'X'}, 4, "xz"},
                                         Magic{{0x28, 0xb5, 0x2f, 0xfd}, 4, "zstd"}, Magic{{0x02, 0x21, 0x4c, 0x18}, 4, "lz4"}};
  for (const Magic& candidate : kMagics) {
    if (magic.size() >= candidate.used && std::memcmp(magic.data(), candidate.bytes.data(), candidate.used) == 0) return candidate.name;
  }
  return {};
}

}  // namespace

ByteSource ByteSource::of_file(int fd, std::string_view what) {
  const std::string name(what);
  return {base::file_size_bytes(fd, name),
          [fd, name](std::uint64_t offset, std::span<std::byte> into) { base::read_exact(fd, offset, into, name); }};
}

ByteSource ByteSource::of_memory(std::span<const std::byte> contents) {
  return {contents.size(), [contents](std::uint64_t offset, std::span<std::byte> into) {
            if (!within(offset, into.size(), contents.size())) throw BadInput("the file ends early");
            if (!into.empty()) std::memcpy(into.data(), contents.data() + offset, into.size());
          }};
}

KernelImage inspect_kernel(const ByteSource& file, const std::string& name) {
  std::array<std::byte, 4> magic{};
  const std::size_t have = std::min<std::uint64_t>(file.bytes, magic.size());
  file.read(0, std::span(magic).first(have));
  if (have == magic.size() && std::memcmp(magic.data(), ELFMAG, SELFMAG) == 0) return inspect_elf(file, name);
  if (within(kSetupHeaderOffset, sizeof(setup_header), file.bytes) &&
      read_object<std::uint32_t>(file, kSetupHeaderMagicOffset) == kSetupHeaderMagic) {
    return inspect_bzimage(file, name);
  }
  if (const std::string_view compression = compression_of(std::span(magic).first(have)); !compression.empty()) {
    throw BadInput(fmt::format("--kernel: '{}' is a {} file; unpack it first (a bzImage unpacks itself)", name, compression));
  }
  throw BadInput(fmt::format("--kernel: '{}' ({} bytes) is neither a bzImage (\"HdrS\" at byte 514) nor an ELF file; Debian's "
                             "/boot/vmlinuz-* works",
                             name, file.bytes));
}

}  // namespace vmm::boot
