// SPDX-License-Identifier: Apache-2.0
// What a kernel is told: the zero page, and PVH's start info. Read back by offsets of the specifications, not by the
// structures that wrote them.
#include "boot/pvh.hpp"
#include "boot/zero_page.hpp"
#include "images.hpp"
#include "memory/guest_memory.hpp"
#include "memory/layout.hpp"

namespace vmm::boot::test {
namespace {

namespace layout = memory::layout;
using testing::Each;

struct Info {
  std::vector<E820Entry> map = e820_map(memory::ram_regions(256 * layout::kMiB));
  BootInfo info;
  Info() {
    info.command_line_address = 0x20000;
    info.initrd = InitrdPlace{0xf000000, 0x123456};
    info.rsdp_address = 0xe0000;
    info.memory_map = map;
  }
};

Bytes page_of(const KernelImage& kernel, const BootInfo& info) {
  const boot_params page = make_zero_page(kernel, info);
  Bytes bytes;
  put(bytes, 0, page);
  return bytes;
}

TEST(ZeroPage, HasNothingOfTheFirstSectorButTheHeader) {
  // The first sector is 0xff all over, as since Linux 6.1.88: the sentinel at 0x1ef above all must stay 0, or the
  // kernel clears what it was told.
  const Info info;
  const Bytes page = page_of(inspect(BzImage().bytes()), info.info);
  ASSERT_EQ(page.size(), 4096U);
  for (std::size_t i = 0; i < 0x1f1; ++i) {
    const bool ours = (i >= 0x70 && i < 0x78) || i == 0x1e8;  // acpi_rsdp_addr, e820_entries
    if (ours) continue;
    ASSERT_EQ(page[i], std::byte{0}) << std::hex << i;
  }
  for (std::size_t i = 0x202 + 0x6a; i < 0x2d0; ++i) ASSERT_EQ(page[i], std::byte{0}) << std::hex << i;
  EXPECT_EQ(get<std::uint8_t>(page, 0x1ef), 0);
}

TEST(ZeroPage, CarriesTheKernelsHeader) {
  const Info info;
  const Bytes page = page_of(inspect(BzImage().bytes()), info.info);
  EXPECT_EQ(get<std::uint8_t>(page, 0x1f1), 31);  // setup_sects
  EXPECT_EQ(get<std::uint16_t>(page, 0x1fe), 0xaa55);
  EXPECT_EQ(get<std::uint16_t>(page, 0x200), 0x6aeb);
  EXPECT_EQ(get<std::uint32_t>(page, 0x202), 0x53726448U);
  EXPECT_EQ(get<std::uint16_t>(page, 0x206), 0x020f);
  EXPECT_EQ(get<std::uint32_t>(page, 0x230), 0x200000U);   // kernel_alignment
  EXPECT_EQ(get<std::uint64_t>(page, 0x258), 0x1000000U);  // pref_address
  EXPECT_EQ(get<std::uint32_t>(page, 0x260), 0x1800000U);  // init_size
}

TEST(ZeroPage, FieldsOfTheBootLoader) {
  const Info info;
  const Bytes page = page_of(inspect(BzImage().bytes()), info.info);
  EXPECT_EQ(get<std::uint64_t>(page, 0x070), 0xe0000U);    // acpi_rsdp_addr
  EXPECT_EQ(get<std::uint8_t>(page, 0x210), 0xff);         // type_of_loader
  EXPECT_EQ(get<std::uint8_t>(page, 0x211), 1);            // loadflags: LOADED_HIGH
  EXPECT_EQ(get<std::uint16_t>(page, 0x1fa), 0xffff);      // vid_mode
  EXPECT_EQ(get<std::uint32_t>(page, 0x218), 0xf000000U);  // ramdisk_image
  EXPECT_EQ(get<std::uint32_t>(page, 0x21c), 0x123456U);   // ramdisk_size
  EXPECT_EQ(get<std::uint32_t>(page, 0x0c0), 0U);          // ext_ramdisk_image
  EXPECT_EQ(get<std::uint32_t>(page, 0x0c4), 0U);
  EXPECT_EQ(get<std::uint32_t>(page, 0x228), 0x20000U);  // cmd_line_ptr
  EXPECT_EQ(get<std::uint32_t>(page, 0x0c8), 0U);
}

TEST(ZeroPage, FieldsOfAnotherLoaderAreCleared) {
  BzImage kernel;
  kernel.header.loadflags = LOADED_HIGH | CAN_USE_HEAP | KEEP_SEGMENTS | QUIET_FLAG;
  kernel.header.heap_end_ptr = 0xfe00;
  kernel.header.setup_data = 0xdeadbeefcafe;
  kernel.header.ramdisk_image = 0x12345000;
  kernel.header.ramdisk_size = 0x1000;
  kernel.header.ext_loader_type = 7;
  Info info;
  info.info.initrd.reset();
  const Bytes page = page_of(inspect(kernel.bytes()), info.info);
  EXPECT_EQ(get<std::uint8_t>(page, 0x211), LOADED_HIGH | QUIET_FLAG);
  EXPECT_EQ(get<std::uint16_t>(page, 0x224), 0);
  EXPECT_EQ(get<std::uint8_t>(page, 0x227), 0);
  EXPECT_EQ(get<std::uint64_t>(page, 0x250), 0U);
  EXPECT_EQ(get<std::uint32_t>(page, 0x218), 0U);
  EXPECT_EQ(get<std::uint32_t>(page, 0x21c), 0U);
}

TEST(ZeroPage, HoldsTheMemoryMap) {
  const Info info;
  const Bytes page = page_of(inspect(BzImage().bytes()), info.info);
  ASSERT_EQ(get<std::uint8_t>(page, 0x1e8), info.map.size());
  for (std::size_t i = 0; i < info.map.size(); ++i) {
    const std::size_t at = 0x2d0 + i * 20;
    EXPECT_EQ(get<std::uint64_t>(page, at), info.map[i].address);
    EXPECT_EQ(get<std::uint64_t>(page, at + 8), info.map[i].bytes);
    EXPECT_EQ(get<std::uint32_t>(page, at + 16), static_cast<std::uint32_t>(info.map[i].type));
  }
  EXPECT_THAT(std::vector(page.begin() + 0x2d0 + static_cast<std::ptrdiff_t>(info.map.size()) * 20, page.end()),
              Each(std::byte{0}));
}

TEST(ZeroPage, HoldsAtMost128Entries) {
  Info info;
  info.map.assign(128, {0, 1, E820Type::kRam});
  info.info.memory_map = info.map;
  const KernelImage kernel = inspect(BzImage().bytes());
  EXPECT_EQ(get<std::uint8_t>(page_of(kernel, info.info), 0x1e8), 128);
  info.map.push_back(info.map.front());
  info.info.memory_map = info.map;
  EXPECT_THAT(bad_input([&] { (void)make_zero_page(kernel, info.info); }), testing::HasSubstr("129 entries"));
}

TEST(ZeroPage, LongHeadersEndBeforeTheNextField) {
  BzImage kernel;
  kernel.jump_bytes = 0xff;
  const Info info;
  const Bytes page = page_of(inspect(kernel.bytes()), info.info);
  EXPECT_EQ(page[0x28f], std::byte{0xff});  // carried along, though this build's struct ends before
  EXPECT_EQ(get<std::uint32_t>(page, 0x290), 0U);
}

TEST(ZeroPage, OfAnElfKernelIsMadeUp) {
  Elf elf = Elf::vmlinux();
  elf.notes.clear();
  const Info info;
  const Bytes page = page_of(inspect(elf.bytes()), info.info);
  EXPECT_EQ(get<std::uint16_t>(page, 0x1fe), 0xaa55);
  EXPECT_EQ(get<std::uint32_t>(page, 0x202), 0x53726448U);
  EXPECT_GE(get<std::uint16_t>(page, 0x206), 0x020c);
  EXPECT_EQ(get<std::uint8_t>(page, 0x210), 0xff);
  EXPECT_EQ(get<std::uint8_t>(page, 0x211), 1);
  EXPECT_EQ(get<std::uint32_t>(page, 0x228), 0x20000U);
  EXPECT_EQ(get<std::uint32_t>(page, 0x218), 0xf000000U);
}

TEST(Pvh, StartInfoVersion1) {
  const Info info;
  const PvhBoot boot = make_pvh_boot(info.info);
  Bytes bytes;
  put(bytes, 0, boot.start_info);
  ASSERT_EQ(bytes.size(), 56U);
  EXPECT_EQ(get<std::uint32_t>(bytes, 0), 0x336ec578U);
  EXPECT_EQ(get<std::uint32_t>(bytes, 4), 1U);
  EXPECT_EQ(get<std::uint32_t>(bytes, 8), 0U);
  EXPECT_EQ(get<std::uint32_t>(bytes, 12), 1U);
  EXPECT_EQ(get<std::uint64_t>(bytes, 16), layout::kPvhModules);
  EXPECT_EQ(get<std::uint64_t>(bytes, 24), 0x20000U);
  EXPECT_EQ(get<std::uint64_t>(bytes, 32), 0xe0000U);
  EXPECT_EQ(get<std::uint64_t>(bytes, 40), layout::kPvhMemoryMap);
  EXPECT_EQ(get<std::uint32_t>(bytes, 48), info.map.size());
  EXPECT_EQ(get<std::uint32_t>(bytes, 52), 0U);
}

TEST(Pvh, InitrdIsTheFirstModule) {
  Info info;
  const PvhBoot boot = make_pvh_boot(info.info);
  ASSERT_EQ(boot.modules.size(), 1U);
  Bytes bytes;
  put(bytes, 0, boot.modules.front());
  ASSERT_EQ(bytes.size(), 32U);
  EXPECT_EQ(get<std::uint64_t>(bytes, 0), 0xf000000U);
  EXPECT_EQ(get<std::uint64_t>(bytes, 8), 0x123456U);
  EXPECT_EQ(get<std::uint64_t>(bytes, 16), 0U);
  EXPECT_EQ(get<std::uint64_t>(bytes, 24), 0U);
  info.info.initrd.reset();
  const PvhBoot without = make_pvh_boot(info.info);
  EXPECT_TRUE(without.modules.empty());
  EXPECT_EQ(without.start_info.modules, 0U);
  EXPECT_EQ(without.start_info.modules_address, 0U);
}

TEST(Pvh, MemoryMap) {
  const Info info;
  const PvhBoot boot = make_pvh_boot(info.info);
  ASSERT_EQ(boot.memory_map.size(), info.map.size());
  for (std::size_t i = 0; i < info.map.size(); ++i) {
    Bytes bytes;
    put(bytes, 0, boot.memory_map[i]);
    ASSERT_EQ(bytes.size(), 24U);
    EXPECT_EQ(get<std::uint64_t>(bytes, 0), info.map[i].address);
    EXPECT_EQ(get<std::uint64_t>(bytes, 8), info.map[i].bytes);
    EXPECT_EQ(get<std::uint32_t>(bytes, 16), static_cast<std::uint32_t>(info.map[i].type));
    EXPECT_EQ(get<std::uint32_t>(bytes, 20), 0U);
  }
}

}  // namespace
}  // namespace vmm::boot::test
