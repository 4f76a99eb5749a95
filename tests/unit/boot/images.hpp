// SPDX-License-Identifier: Apache-2.0
// Synthetic kernels and payloads, each field of which a test can spoil.
#pragma once

#include <asm/bootparam.h>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.hpp"
#include "boot/kernel_image.hpp"

namespace vmm::boot::test {

using Bytes = std::vector<std::byte>;

template <typename T>
void put(Bytes& bytes, std::size_t offset, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes.size() < offset + sizeof value) bytes.resize(offset + sizeof value);
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

template <typename T>
T get(std::span<const std::byte> bytes, std::size_t offset) {
  T value{};
  EXPECT_LE(offset + sizeof value, bytes.size());
  if (offset + sizeof value <= bytes.size()) std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// A bzImage like Debian's: protocol 2.15, 64-bit entry, 1 MiB of kernel, whose first sector has 0xff where the header
// is not (Linux 6.1.88 and later).
struct BzImage {
  setup_header header{};
  std::uint8_t jump_bytes = 0x6a;  // header to 0x26c, as current kernels have
  std::size_t payload_bytes = 1 << 20;
  std::byte filler{0xff};

  BzImage() {
    header.setup_sects = 31;
    header.syssize = (1 << 20) / 16;
    header.boot_flag = 0xaa55;
    header.header = 0x53726448;
    header.version = 0x020f;
    header.loadflags = LOADED_HIGH;
    header.code32_start = 0x100000;
    header.initrd_addr_max = 0x7fffffff;
    header.kernel_alignment = 0x200000;
    header.relocatable_kernel = 1;
    header.min_alignment = 21;
    header.xloadflags = XLF_KERNEL_64 | XLF_CAN_BE_LOADED_ABOVE_4G;
    header.cmdline_size = 2047;
    header.pref_address = 0x1000000;
    header.init_size = 0x1800000;
  }
  std::size_t payload_offset() const {
    return (std::size_t{header.setup_sects == 0 ? std::uint8_t{4} : header.setup_sects} + 1) * 512;
  }
  Bytes bytes() const {
    Bytes file(payload_offset() + payload_bytes, filler);
    put(file, 0x1f1, header);
    put(file, 0x200, static_cast<std::uint16_t>(0xeb | jump_bytes << 8));
    for (std::size_t i = 0; i < payload_bytes; ++i) file[payload_offset() + i] = static_cast<std::byte>(i * 7);
    return file;
  }
};

struct Note {
  std::uint32_t type;
  std::string name;  // with its NUL
  Bytes description;
};

// An ELF64 executable with any program headers; their p_offset and p_filesz are what the test says.
struct Elf {
  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> program_headers;
  std::size_t file_bytes = 0x4000;
  std::vector<Note> notes;  // put at kNotes, in a PT_NOTE of their own
  static constexpr std::size_t kNotes = 0x800;

  Elf() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_EXEC;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_entry = 0x400000;
    header.e_phoff = sizeof(Elf64_Ehdr);
    header.e_ehsize = sizeof(Elf64_Ehdr);
    header.e_phentsize = sizeof(Elf64_Phdr);
  }
  static Elf64_Phdr load(std::uint64_t offset, std::uint64_t file_size, std::uint64_t address, std::uint64_t memory) {
    Elf64_Phdr result{};
    result.p_type = PT_LOAD;
    result.p_offset = offset;
    result.p_filesz = file_size;
    result.p_paddr = address;
    result.p_vaddr = address;
    result.p_memsz = memory;
    result.p_align = 0x1000;
    return result;
  }
  // Two segments, as a payload has.
  static Elf payload() {
    Elf elf;
    elf.program_headers = {load(0x1000, 0x800, 0x400000, 0x800), load(0x2000, 0x1000, 0x401000, 0x3000)};
    return elf;
  }
  // A vmlinux with a PVH note.
  static Elf vmlinux(std::uint64_t pvh_entry = 0x1000040) {
    Elf elf;
    elf.header.e_entry = 0x1000000;
    elf.program_headers = {load(0x1000, 0x2000, 0x1000000, 0x2000), load(0x3000, 0x1000, 0x1200000, 0x200000)};
    Bytes entry;
    put(entry, 0, pvh_entry);
    elf.notes = {{6, std::string("Xen\0", 4), Bytes(5)}, {18, std::string("Xen\0", 4), entry}};
    return elf;
  }
  Bytes note_bytes() const {
    Bytes result;
    for (const Note& note : notes) {
      const auto append = [&result](std::span<const std::byte> more) {
        result.insert(result.end(), more.begin(), more.end());
        result.resize((result.size() + 3) / 4 * 4);
      };
      const Elf64_Nhdr nhdr{static_cast<std::uint32_t>(note.name.size()),
                            static_cast<std::uint32_t>(note.description.size()), note.type};
      append(std::as_bytes(std::span(&nhdr, 1)));
      append(std::as_bytes(std::span(note.name)));
      append(note.description);
    }
    return result;
  }
  Bytes bytes() const {
    Bytes file(file_bytes);
    std::vector<Elf64_Phdr> headers = program_headers;
    if (!notes.empty()) {
      const Bytes raw = note_bytes();
      Elf64_Phdr phdr{};
      phdr.p_type = PT_NOTE;
      phdr.p_offset = kNotes;
      phdr.p_filesz = raw.size();
      phdr.p_align = 4;
      headers.push_back(phdr);
      std::memcpy(file.data() + kNotes, raw.data(), raw.size());
    }
    Elf64_Ehdr ehdr = header;
    if (ehdr.e_phnum == 0) ehdr.e_phnum = static_cast<Elf64_Half>(headers.size());
    put(file, 0, ehdr);
    for (std::size_t i = 0; i < headers.size(); ++i) put(file, sizeof ehdr + i * sizeof headers[i], headers[i]);
    return file;
  }
};

inline KernelImage inspect(const Bytes& file, const std::string& name = "some/file") {
  return inspect_kernel(ByteSource::of_bytes(file), name);
}

// The message of the BadInput that `action` must throw. Every message is one line.
template <typename Action>
std::string bad_input(Action&& action) {
  try {
    action();
  } catch (const base::BadInput& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_EQ(error.status(), base::ExitStatus::kBadInput);
    return message;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a BadInput: " << error.what();
    return {};
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline std::string refused(const Bytes& file) {
  const std::string message = bad_input([&] { (void)inspect(file); });
  EXPECT_TRUE(message.starts_with("--kernel: 'some/file' ")) << message;
  return message;
}

}  // namespace vmm::boot::test
