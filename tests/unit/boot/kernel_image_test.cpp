// SPDX-License-Identifier: Apache-2.0
#include "boot/kernel_image.hpp"

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <random>
#include <unistd.h>

#include "base/unique_fd.hpp"
#include "images.hpp"

namespace vmm::boot::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// ---- bzImage ----

TEST(BzImage, IsReadByItsHeader) {
  const BzImage kernel;
  const KernelImage image = inspect(kernel.bytes());
  EXPECT_EQ(image.protocol, BootProtocol::kLinux64);
  EXPECT_TRUE(image.is_bzimage());
  EXPECT_THAT(image.segments, ElementsAre(ImageSegment{32 * 512, 1 << 20, 0x1000000, 0x1800000}));
  EXPECT_EQ(image.entry, 0x1000200U);
  EXPECT_EQ(image.elf_entry, 0U);
  EXPECT_EQ(image.initrd_addr_max, 0x7fffffffU);
  EXPECT_EQ(image.command_line_capacity, 2047U);
  EXPECT_EQ(image.option, "--kernel");
  EXPECT_EQ(image.name, "some/file");
}

TEST(BzImage, SetupHeaderEndsWhereItsJumpSays) {
  BzImage kernel;
  const Bytes file = kernel.bytes();
  const KernelImage image = inspect(file);
  ASSERT_EQ(image.setup_header.size(), 0x202U + 0x6a - 0x1f1);
  EXPECT_TRUE(std::equal(image.setup_header.begin(), image.setup_header.end(), file.begin() + 0x1f1));
  // No jump can make it reach the zero page's next field, at 0x290.
  kernel.jump_bytes = 0xff;
  EXPECT_EQ(inspect(kernel.bytes()).setup_header.size(), 0x290U - 0x1f1);
}

TEST(BzImage, SetupSectsZeroMeansFour) {
  BzImage kernel;
  kernel.header.setup_sects = 0;
  EXPECT_EQ(inspect(kernel.bytes()).segments.front().file_offset, 5U * 512);
}

TEST(BzImage, SetupSectsMayBe255) {
  BzImage kernel;
  kernel.header.setup_sects = 255;
  EXPECT_EQ(inspect(kernel.bytes()).segments.front().file_offset, 256U * 512);
}

TEST(BzImage, SetupSects255OfAShortFileIsRefused) {
  Bytes file = BzImage().bytes();
  file[0x1f1] = std::byte{255};
  EXPECT_THAT(refused(file), AllOf(HasSubstr("1064960 bytes"), HasSubstr("asks for 1179648"),
                                   HasSubstr("setup_sects 255"), HasSubstr("cut off")));
}

TEST(BzImage, CutTo600Bytes) {
  Bytes file = BzImage().bytes();
  file.resize(600);
  EXPECT_THAT(refused(file), AllOf(HasSubstr("ends at byte 600"), HasSubstr("setup header"), HasSubstr("cut off")));
}

TEST(BzImage, CutAnywhereIsRefused) {
  const Bytes whole = BzImage().bytes();
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < 0x400 ? 1 : 4093) {
    Bytes file = whole;
    file.resize(bytes);
    EXPECT_FALSE(refused(file).empty()) << bytes;
  }
  Bytes file = whole;
  file.pop_back();
  EXPECT_THAT(refused(file), HasSubstr("cut off"));
}

TEST(BzImage, MoreBytesThanTheKernelAreIgnored) {
  Bytes file = BzImage().bytes();
  file.resize(file.size() + 1848);  // a signature, as distributions append
  EXPECT_EQ(inspect(file).segments.front().file_bytes, std::uint64_t{1} << 20);
}

TEST(BzImage, OldProtocolIsRefused) {
  BzImage kernel;
  kernel.header.version = 0x020b;
  EXPECT_THAT(refused(kernel.bytes()), AllOf(HasSubstr("protocol 2.11"), HasSubstr("2.12 or later")));
  kernel.header.version = 0x020c;
  EXPECT_EQ(inspect(kernel.bytes()).protocol, BootProtocol::kLinux64);
}

TEST(BzImage, ThirtyTwoBitKernelIsRefused) {
  BzImage kernel;
  kernel.header.xloadflags = 0;
  EXPECT_THAT(refused(kernel.bytes()), AllOf(HasSubstr("32-bit kernel"), HasSubstr("x86-64 is needed")));
}

TEST(BzImage, ZImageIsRefused) {
  BzImage kernel;
  kernel.header.loadflags = 0;
  EXPECT_THAT(refused(kernel.bytes()), AllOf(HasSubstr("zImage"), HasSubstr("bzImage is needed")));
}

TEST(BzImage, ShortHeaderIsRefused) {
  BzImage kernel;
  kernel.jump_bytes = 0x61;  // one byte less than init_size
  EXPECT_THAT(refused(kernel.bytes()), AllOf(HasSubstr("setup header has 114 bytes"), HasSubstr("115 or more")));
  kernel.jump_bytes = 0x62;
  EXPECT_EQ(inspect(kernel.bytes()).setup_header.size(), 115U);
}

TEST(BzImage, WithoutKernelIsRefused) {
  BzImage kernel;
  for (const std::uint32_t syssize : {0U, 0x20U}) {
    kernel.header.syssize = syssize;
    EXPECT_THAT(refused(kernel.bytes()), HasSubstr("64-bit entry lies at byte 512"));
  }
  kernel.header.syssize = 0x21;
  EXPECT_EQ(inspect(kernel.bytes()).segments.front().file_bytes, 0x210U);
}

TEST(BzImage, LargestSyssizeIsRefusedWithoutWrapping) {
  BzImage kernel;
  kernel.header.syssize = 0xffffffff;
  EXPECT_THAT(refused(kernel.bytes()), HasSubstr("asks for 68719493104"));
}

TEST(BzImage, MemoryIsAtLeastTheFile) {
  BzImage kernel;
  kernel.header.init_size = 0;
  EXPECT_EQ(inspect(kernel.bytes()).segments.front().memory_bytes, std::uint64_t{1} << 20);
}

TEST(BzImage, WithoutPreferenceGoesToItsAlignment) {
  BzImage kernel;
  kernel.header.pref_address = 0;
  const KernelImage image = inspect(kernel.bytes());
  EXPECT_EQ(image.segments.front().address, 0x200000U);
  EXPECT_EQ(image.entry, 0x200200U);
  kernel.header.kernel_alignment = 0x300000;
  EXPECT_THAT(refused(kernel.bytes()), AllOf(HasSubstr("kernel_alignment of 0x300000"), HasSubstr("power of two")));
  kernel.header.relocatable_kernel = 0;
  EXPECT_EQ(inspect(kernel.bytes()).segments.front().address, 0x100000U);
}

TEST(BzImage, PreferredAddressThatWrapsIsRefused) {
  BzImage kernel;
  kernel.header.pref_address = ~std::uint64_t{0} - 0x1000;
  EXPECT_THAT(refused(kernel.bytes()), HasSubstr("beyond the end of the address space"));
}

TEST(BzImage, CommandLineSizeZeroMeans255) {
  BzImage kernel;
  kernel.header.cmdline_size = 0;
  EXPECT_EQ(inspect(kernel.bytes()).command_line_capacity, 255U);
}

// ---- ELF ----

TEST(Elf, PayloadIsReadByItsProgramHeaders) {
  const KernelImage image = inspect(Elf::payload().bytes());
  EXPECT_EQ(image.protocol, BootProtocol::kElf64);
  EXPECT_THAT(image.segments, ElementsAre(ImageSegment{0x1000, 0x800, 0x400000, 0x800},
                                          ImageSegment{0x2000, 0x1000, 0x401000, 0x3000}));
  EXPECT_EQ(image.entry, 0x400000U);
  EXPECT_EQ(image.elf_entry, 0x400000U);
  EXPECT_EQ(image.command_line_capacity, 2047U);
  EXPECT_TRUE(image.setup_header.empty());
}

TEST(Elf, PvhNoteGivesTheEntry) {
  const KernelImage image = inspect(Elf::vmlinux().bytes());
  EXPECT_EQ(image.protocol, BootProtocol::kPvh);
  EXPECT_EQ(image.entry, 0x1000040U);
  EXPECT_EQ(image.elf_entry, 0x1000000U);
}

TEST(Elf, PvhEntryMayHaveFourBytes) {
  Elf elf = Elf::vmlinux();
  elf.notes.back().description.resize(4);
  EXPECT_EQ(inspect(elf.bytes()).entry, 0x1000040U);
}

TEST(Elf, OtherNotesAreNotPvh) {
  for (const auto& spoil : std::vector<void (*)(Note&)>{
           [](Note& note) { note.type = 17; }, [](Note& note) { note.name = std::string("GNU\0", 4); },
           [](Note& note) { note.name = "Xen"; }, [](Note& note) { note.description.resize(3); }}) {
    Elf elf = Elf::vmlinux();
    spoil(elf.notes.back());
    EXPECT_EQ(inspect(elf.bytes()).protocol, BootProtocol::kElf64);
  }
}

TEST(Elf, DamagedNotesAreNotFollowed) {
  for (const std::uint32_t size : {0xffffffffU, 0xfffffff0U, 0x10000U}) {
    for (const std::size_t field : {0U, 4U}) {
      Bytes file = Elf::vmlinux().bytes();
      put(file, Elf::kNotes + field, size);  // the first note hides the second
      EXPECT_EQ(inspect(file).protocol, BootProtocol::kElf64);
    }
  }
}

TEST(Elf, NotesPaddedToEight) {
  Elf elf = Elf::payload();
  Elf64_Phdr notes{};
  notes.p_type = PT_NOTE;
  notes.p_offset = Elf::kNotes;
  notes.p_align = 8;
  notes.p_filesz = 2 * 32;
  elf.program_headers.push_back(notes);
  Bytes file = elf.bytes();
  // name of 5 bytes and description of 5, each padded to 8: 12 + 8 + 8, so that the next begins at 28.
  put(file, Elf::kNotes, std::array<std::uint32_t, 3>{5, 5, 5});
  put(file, Elf::kNotes + 28, std::array<std::uint32_t, 3>{4, 8, 18});
  put(file, Elf::kNotes + 40, std::array<char, 4>{'X', 'e', 'n', '\0'});
  put(file, Elf::kNotes + 48, std::uint64_t{0x400010});
  EXPECT_EQ(inspect(file).entry, 0x400010U);
}

TEST(Elf, NotesOutsideTheFileAreRefused) {
  for (const auto& [offset, bytes] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{~std::uint64_t{0}, 64}, {0x3fff, 2}, {0, 1 << 20}}) {
    Elf elf = Elf::payload();
    Elf64_Phdr notes{};
    notes.p_type = PT_NOTE;
    notes.p_offset = offset;
    notes.p_filesz = bytes;
    elf.program_headers.push_back(notes);
    EXPECT_THAT(refused(elf.bytes()), HasSubstr("notes (program header 2)"));
  }
}

TEST(Elf, PvhEntryOutsideItsSegmentsIsRefused) {
  for (const std::uint64_t entry : {0x0ULL, 0xfffffULL, 0x1002000ULL, 0x1201000ULL, 0x100001000ULL, ~0ULL}) {
    EXPECT_THAT(refused(Elf::vmlinux(entry).bytes()), HasSubstr("PVH entry at")) << entry;
  }
}

TEST(Elf, EntryOutsideItsSegmentsIsRefused) {
  Elf elf = Elf::payload();
  for (const std::uint64_t entry : {0x0ULL, 0x3fffffULL, 0x400800ULL, 0x402000ULL, 0xffffffff81000000ULL}) {
    elf.header.e_entry = entry;
    EXPECT_THAT(refused(elf.bytes()), HasSubstr("entry point at")) << entry;
  }
  elf.header.e_entry = 0x4007ff;
  EXPECT_EQ(inspect(elf.bytes()).entry, 0x4007ffU);
}

TEST(Elf, FileRangesThatWrapOrLieOutsideAreRefused) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  for (const auto& [offset, bytes] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {kAll, 1}, {kAll - 0xff, 0x100}, {kAll, 0x800}, {0x3801, 0x800}, {0x4001, 0}, {0, 0x4001}, {1, 0x4000}}) {
    Elf elf = Elf::payload();
    elf.program_headers[0].p_offset = offset;
    elf.program_headers[0].p_filesz = bytes;
    elf.program_headers[0].p_memsz = 0x5000;
    EXPECT_THAT(refused(elf.bytes()),
                AllOf(HasSubstr("16384 bytes"), HasSubstr("program header 0"), HasSubstr("p_offset")))
        << offset << " " << bytes;
  }
}

TEST(Elf, FileSizeAboveMemorySizeIsRefused) {
  Elf elf = Elf::payload();
  elf.program_headers[1].p_filesz = 0x3001;
  EXPECT_THAT(refused(elf.bytes()), AllOf(HasSubstr("p_filesz"), HasSubstr("0x3001"), HasSubstr("0x3000")));
  elf.program_headers[1].p_filesz = ~std::uint64_t{0};
  EXPECT_THAT(refused(elf.bytes()), HasSubstr("p_filesz"));
}

TEST(Elf, AddressesThatWrapAreRefused) {
  Elf elf = Elf::payload();
  elf.program_headers[1].p_paddr = ~std::uint64_t{0} - 0x100;
  EXPECT_THAT(refused(elf.bytes()),
              AllOf(HasSubstr("program header 1"), HasSubstr("p_paddr"), HasSubstr("0xfffffffffffffeff")));
  elf = Elf::payload();
  elf.program_headers[1].p_memsz = ~std::uint64_t{0};
  EXPECT_THAT(refused(elf.bytes()), HasSubstr("p_memsz"));
}

TEST(Elf, OverlappingSegmentsAreRefused) {
  Elf elf = Elf::payload();
  elf.program_headers[0].p_memsz = 0x1001;
  EXPECT_THAT(refused(elf.bytes()), AllOf(HasSubstr("overlap"), HasSubstr("0x400000"), HasSubstr("0x401000")));
  elf.program_headers[0].p_memsz = 0x1000;
  EXPECT_EQ(inspect(elf.bytes()).segments.size(), 2U);
  // In whatever order, and one within the other.
  elf.program_headers[0].p_paddr = 0x403000;
  EXPECT_THAT(refused(elf.bytes()), HasSubstr("overlap"));
}

TEST(Elf, SegmentsAreSortedAndEmptyOnesLeftOut) {
  Elf elf = Elf::payload();
  std::swap(elf.program_headers[0], elf.program_headers[1]);
  elf.program_headers.push_back(Elf::load(0, 0, 0x400000, 0));
  const KernelImage image = inspect(elf.bytes());
  ASSERT_EQ(image.segments.size(), 2U);
  EXPECT_LT(image.segments[0].address, image.segments[1].address);
}

TEST(Elf, ProgramHeadersOutsideTheFileAreRefused) {
  for (const std::uint64_t offset : {~0ULL, ~0ULL - 0x37, 0x4000ULL, 0x3f91ULL}) {
    Elf elf = Elf::payload();
    elf.header.e_phoff = offset;
    EXPECT_THAT(refused(elf.bytes()), AllOf(HasSubstr("e_phoff"), HasSubstr("cut off"))) << offset;
  }
}

TEST(Elf, ProgramHeaderCountAndSizeAreChecked) {
  Elf elf = Elf::payload();
  elf.header.e_phnum = 129;
  EXPECT_THAT(refused(elf.bytes()), AllOf(HasSubstr("129 program headers"), HasSubstr("1 to 128")));
  elf.header.e_phnum = 0xffff;
  EXPECT_THAT(refused(elf.bytes()), HasSubstr("65535 program headers"));
  elf = Elf::payload();
  elf.header.e_phentsize = 32;
  EXPECT_THAT(refused(elf.bytes()), AllOf(HasSubstr("e_phentsize"), HasSubstr("56")));
  elf = Elf();
  EXPECT_THAT(refused(elf.bytes()), HasSubstr("0 program headers"));
  elf.program_headers.emplace_back().p_type = PT_DYNAMIC;
  EXPECT_THAT(refused(elf.bytes()), HasSubstr("PT_LOAD"));
}

TEST(Elf, OtherMachinesAndTypesAreRefused) {
  Elf elf = Elf::payload();
  elf.header.e_machine = EM_AARCH64;
  EXPECT_THAT(refused(elf.bytes()), AllOf(HasSubstr("machine 183"), HasSubstr("62")));
  elf = Elf::payload();
  elf.header.e_ident[EI_CLASS] = ELFCLASS32;
  EXPECT_THAT(refused(elf.bytes()), HasSubstr("class 1"));
  elf = Elf::payload();
  elf.header.e_ident[EI_DATA] = ELFDATA2MSB;
  EXPECT_THAT(refused(elf.bytes()), HasSubstr("data 2"));
  elf = Elf::payload();
  elf.header.e_type = ET_DYN;
  EXPECT_THAT(refused(elf.bytes()), AllOf(HasSubstr("type 3"), HasSubstr("-no-pie")));
  elf.header.e_type = ET_REL;
  EXPECT_THAT(refused(elf.bytes()), HasSubstr("type 1"));
}

TEST(Elf, CutAnywhereIsRefused) {
  const Bytes whole = Elf::vmlinux().bytes();
  for (std::size_t bytes = 4; bytes < whole.size(); bytes += bytes < 0x200 ? 1 : 509) {
    Bytes file = whole;
    file.resize(bytes);
    EXPECT_FALSE(refused(file).empty()) << bytes;
  }
}

// ---- neither ----

TEST(KernelImage, NeitherKernelNorElf) {
  Bytes text(4096, std::byte{'a'});
  EXPECT_THAT(refused(text), AllOf(HasSubstr("neither a Linux bzImage nor an ELF64"), HasSubstr("4096 bytes"),
                                   HasSubstr("begins with 61 61 61 61 61 61 61 61"), HasSubstr("would work")));
}

TEST(KernelImage, EmptyFile) {
  EXPECT_THAT(refused({}), AllOf(HasSubstr("neither"), HasSubstr("0 bytes, empty")));
}

TEST(KernelImage, CompressedKernelsAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"\x1f\x8b\x08", "gzip -dc"},
                                                                  {"\x28\xb5\x2f\xfd", "zstd -dc"},
                                                                  {std::string("\xfd"
                                                                               "7zXZ\0",
                                                                               6),
                                                                   "xz -dc"},
                                                                  {"\x02\x21\x4c\x18", "lz4 -dc"},
                                                                  {"\x04\x22\x4d\x18", "lz4 -dc"},
                                                                  {"BZh9", "bzip2 -dc"},
                                                                  {"\x89LZO", "lzop -dc"}};
  for (const auto& [magic, remedy] : cases) {
    Bytes file(4096);
    std::memcpy(file.data(), magic.data(), magic.size());
    EXPECT_THAT(refused(file), AllOf(HasSubstr("is compressed with"), HasSubstr(remedy)));
  }
}

TEST(KernelImage, HeaderMagicWithoutBootFlagIsNoKernel) {
  Bytes file = BzImage().bytes();
  put(file, 0x1fe, std::uint16_t{0});
  EXPECT_THAT(refused(file), HasSubstr("neither"));
}

TEST(KernelImage, MessagesNameTheOptionOfTheSource) {
  const Bytes file(10);
  const std::string message =
      bad_input([&] { (void)inspect_kernel(ByteSource::of_bytes(file, "--payload"), "dir/name"); });
  EXPECT_TRUE(message.starts_with("--payload: 'dir/name' ")) << message;
}

// Any 16 bytes of a good image spoilt: inspected or refused, never anything else (run with sanitizers).
TEST(KernelImage, SpoiltImagesAreInspectedOrRefused) {
  std::mt19937 random(7);
  std::size_t accepted = 0;
  std::size_t rejected = 0;
  BzImage small;
  small.payload_bytes = 0x1000;
  small.header.syssize = 0x100;
  for (const Bytes& good : {small.bytes(), Elf::payload().bytes(), Elf::vmlinux().bytes()}) {
    for (int i = 0; i < 3000; ++i) {
      Bytes file = good;
      for (int j = 0; j < 4; ++j) {
        const std::size_t at = random() % std::min<std::size_t>(file.size(), i % 2 == 0 ? 0x270 : 0x900);
        file[at] = static_cast<std::byte>(i % 3 == 0 ? 0xff : random() & 0xff);
      }
      try {
        const KernelImage image = inspect(file);
        ASSERT_FALSE(image.segments.empty());
        for (const ImageSegment& segment : image.segments) {
          ASSERT_LE(segment.file_bytes, segment.memory_bytes);
          ASSERT_LE(segment.file_offset + segment.file_bytes, file.size());
          ASSERT_GE(segment.address + segment.memory_bytes, segment.address);
        }
        ++accepted;
      } catch (const base::BadInput&) {
        ++rejected;
      }
    }
  }
  EXPECT_GT(accepted, 100U);
  EXPECT_GT(rejected, 100U);
}

TEST(ByteSource, ReadsAFileAndKnowsItsEnd) {
  std::string path = testing::TempDir() + "byte-source-XXXXXX";
  const base::UniqueFd fd(::mkstemp(path.data()));
  ASSERT_TRUE(fd);
  ::unlink(path.c_str());
  ASSERT_EQ(::write(fd.get(), "0123456789", 10), 10);
  const ByteSource source = ByteSource::of_file(fd.get(), "--kernel");
  EXPECT_EQ(source.size_bytes(), 10U);
  EXPECT_TRUE(source.contains(10, 0));
  EXPECT_FALSE(source.contains(10, 1));
  EXPECT_FALSE(source.contains(1, ~std::uint64_t{0}));
  std::array<char, 3> text{};
  source.read(7, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(std::string(text.data(), 3), "789");
  EXPECT_THAT(bad_input([&] { source.read(8, std::as_writable_bytes(std::span(text))); }),
              AllOf(HasSubstr("--kernel"), HasSubstr("3 bytes at offset 8")));
}

}  // namespace
}  // namespace vmm::boot::test
