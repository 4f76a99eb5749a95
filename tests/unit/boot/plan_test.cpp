// SPDX-License-Identifier: Apache-2.0
// Whole plans: what lies where, that nothing overlaps, and every refusal.
#include "boot/plan.hpp"

#include <algorithm>

#include "boot/acpi.hpp"
#include "boot/gdt.hpp"
#include "boot/page_tables.hpp"
#include "images.hpp"
#include "memory/layout.hpp"

namespace vmm::boot::test {
namespace {

namespace layout = memory::layout;
using layout::kGiB;
using layout::kKiB;
using layout::kMiB;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

BootPlan linux_plan(const Bytes& kernel, std::optional<std::uint64_t> initrd = 5 * kMiB,
                    std::string_view command_line = "console=ttyS0", std::uint64_t memory_bytes = 256 * kMiB,
                    unsigned vcpus = 2) {
  return plan_linux_boot(inspect(kernel), initrd, command_line, memory::ram_regions(memory_bytes), vcpus);
}

BootPlan payload_plan(const Bytes& payload, std::string_view arguments = "spin_us=1000 rounds=10000",
                      std::uint64_t memory_bytes = 64 * kMiB, unsigned vcpus = 2) {
  return plan_payload(inspect(payload), arguments, memory::ram_regions(memory_bytes), vcpus, 2'100'000);
}

const Bytes& blob_at(const BootPlan& plan, std::uint64_t address) {
  const auto found = std::ranges::find(plan.blobs, address, &Blob::address);
  static const Bytes kNone(4096);
  if (found == plan.blobs.end()) {
    ADD_FAILURE() << "nothing at " << std::hex << address;
    return kNone;
  }
  return found->bytes;
}

std::string text_of(const Bytes& bytes) {
  EXPECT_FALSE(bytes.empty());
  EXPECT_EQ(bytes.back(), std::byte{0});
  std::string text;
  for (const std::byte b : bytes) text += static_cast<char>(b);
  text.pop_back();
  return text;
}

void expect_apart_and_in_ram(const BootPlan& plan, std::uint64_t memory_bytes) {
  const auto ram = memory::ram_regions(memory_bytes);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> extents;
  for (const FileSegment& segment : plan.segments) extents.emplace_back(segment.address, segment.bytes);
  for (const Blob& blob : plan.blobs) extents.emplace_back(blob.address, blob.bytes.size());
  std::ranges::sort(extents);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    EXPECT_TRUE(memory::inside(ram, extents[i].first, extents[i].second));
    if (i > 0) {
      EXPECT_LE(extents[i - 1].first + extents[i - 1].second, extents[i].first);
    }
  }
}

// ---- Linux ----

TEST(LinuxPlan, BzImage) {
  const BootPlan plan = linux_plan(BzImage().bytes());
  EXPECT_THAT(plan.segments, ElementsAre(FileSegment{PlanFile::kKernel, 32 * 512, 1 << 20, 0x1000000},
                                         FileSegment{PlanFile::kInitrd, 0, 5 * kMiB, 251 * kMiB}));
  EXPECT_EQ(text_of(blob_at(plan, layout::kCommandLine)), "console=ttyS0");
  const Bytes& page = blob_at(plan, layout::kZeroPage);
  ASSERT_EQ(page.size(), 4096U);
  EXPECT_EQ(get<std::uint32_t>(page, 0x228), layout::kCommandLine);
  EXPECT_EQ(get<std::uint32_t>(page, 0x218), 251 * kMiB);
  EXPECT_EQ(get<std::uint32_t>(page, 0x21c), 5 * kMiB);
  EXPECT_EQ(get<std::uint64_t>(page, 0x70), layout::kAcpiTables);
  EXPECT_EQ(get<std::uint8_t>(page, 0x1e8), 5);
  EXPECT_EQ(blob_at(plan, layout::kGdt), Gdt::linux64().bytes());
  EXPECT_EQ(blob_at(plan, layout::kPml4), identity_page_tables());
  ASSERT_EQ(plan.registers.size(), 1U);  // the others wait for INIT and SIPI
  EXPECT_EQ(plan.registers.front(), linux64_registers(0x1000200, layout::kZeroPage));
  expect_apart_and_in_ram(plan, 256 * kMiB);
}

TEST(LinuxPlan, CarriesTheAcpiTables) {
  const BootPlan plan = linux_plan(BzImage().bytes(), 4096, "", 256 * kMiB, 8);
  for (const Blob& table : acpi_tables(8)) EXPECT_EQ(blob_at(plan, table.address), table.bytes) << table.name;
}

TEST(LinuxPlan, Pvh) {
  const BootPlan plan = linux_plan(Elf::vmlinux().bytes());
  EXPECT_THAT(plan.segments, ElementsAre(FileSegment{PlanFile::kKernel, 0x1000, 0x2000, 0x1000000},
                                         FileSegment{PlanFile::kKernel, 0x3000, 0x1000, 0x1200000},
                                         FileSegment{PlanFile::kInitrd, 0, 5 * kMiB, 251 * kMiB}));
  const Bytes& info = blob_at(plan, layout::kPvhStartInfo);
  EXPECT_EQ(get<std::uint32_t>(info, 0), 0x336ec578U);
  EXPECT_EQ(get<std::uint64_t>(info, 24), layout::kCommandLine);
  EXPECT_EQ(get<std::uint64_t>(info, 32), layout::kAcpiTables);
  EXPECT_EQ(get<std::uint64_t>(blob_at(plan, layout::kPvhModules), 0), 251 * kMiB);
  EXPECT_EQ(blob_at(plan, layout::kPvhMemoryMap).size(), 5U * 24);
  EXPECT_EQ(blob_at(plan, layout::kGdt), Gdt::pvh().bytes());
  ASSERT_EQ(plan.registers.size(), 1U);
  EXPECT_EQ(plan.registers.front(), pvh_registers(0x1000040, layout::kPvhStartInfo));
  expect_apart_and_in_ram(plan, 256 * kMiB);
}

TEST(LinuxPlan, ElfWithoutPvhStartsIn64BitMode) {
  Elf elf = Elf::vmlinux();
  elf.notes.clear();
  const BootPlan plan = linux_plan(elf.bytes());
  ASSERT_EQ(plan.registers.size(), 1U);
  EXPECT_EQ(plan.registers.front(), linux64_registers(0x1000000, layout::kZeroPage));
  EXPECT_EQ(get<std::uint32_t>(blob_at(plan, layout::kZeroPage), 0x202), 0x53726448U);
  expect_apart_and_in_ram(plan, 256 * kMiB);
}

TEST(LinuxPlan, WithoutInitrd) {
  for (const Bytes& kernel : {BzImage().bytes(), Elf::vmlinux().bytes()}) {
    const BootPlan plan = linux_plan(kernel, std::nullopt);
    EXPECT_EQ(std::ranges::count(plan.segments, PlanFile::kInitrd, &FileSegment::file), 0);
  }
}

TEST(LinuxPlan, EveryMemorySize) {
  for (const std::uint64_t bytes : {64 * kMiB, 64 * kMiB + 4096, 123 * kMiB + 12 * kKiB, 3 * kGiB - 4096, 3 * kGiB,
                                    3 * kGiB + 4096, 8 * kGiB, 512 * kGiB}) {
    expect_apart_and_in_ram(linux_plan(BzImage().bytes(), 5 * kMiB, "", bytes), bytes);
    expect_apart_and_in_ram(linux_plan(Elf::vmlinux().bytes(), 5 * kMiB, "", bytes), bytes);
    expect_apart_and_in_ram(payload_plan(Elf::payload().bytes(), "", bytes), bytes);
  }
}

TEST(LinuxPlan, MemoryTooSmallForTheKernelSaysHowMuchWouldDo) {
  BzImage kernel;
  kernel.header.init_size = 0x3000001;  // one byte more than 64 MiB have above 16 MiB
  EXPECT_THAT(bad_input([&] { (void)linux_plan(kernel.bytes(), 4096, "", 64 * kMiB); }),
              AllOf(HasSubstr("--kernel: 'some/file' needs 0x3000001 bytes of memory at 0x1000000"), HasSubstr("64M"),
                    HasSubstr("--memory=128M would work")));
  kernel.header.init_size = 0x3000000;
  EXPECT_EQ(linux_plan(kernel.bytes(), std::nullopt, "", 64 * kMiB).segments.size(), 1U);
}

TEST(LinuxPlan, TinyMemories) {
  // The options refuse these before; the plan must hold on its own.
  for (const std::uint64_t bytes : {0 * kKiB, 184 * kKiB, 12599 * kKiB}) {
    EXPECT_THAT(bad_input([&] { (void)linux_plan(BzImage().bytes(), 4096, "", bytes); }),
                AllOf(HasSubstr("not in the guest's RAM"), HasSubstr("--memory=64M would work")))
        << bytes;
    if (bytes > 5 * kMiB) continue;  // a payload and its stacks fit
    EXPECT_FALSE(bad_input([&] { (void)payload_plan(Elf::payload().bytes(), "", bytes, 64); }).empty()) << bytes;
  }
}

TEST(LinuxPlan, SegmentsOutsideRamAreRefused) {
  for (const std::uint64_t address :
       {3 * kGiB - 0x1000, 3 * kGiB, 4 * kGiB - 0x1200000, 5 * kGiB, std::uint64_t{1} << 52}) {
    Elf elf = Elf::vmlinux();
    elf.program_headers[1].p_paddr = address;
    EXPECT_THAT(bad_input([&] { (void)linux_plan(elf.bytes(), 4096, "", 4 * kGiB); }),
                AllOf(HasSubstr("not in the guest's RAM"), HasSubstr("would work")))
        << address;
  }
}

TEST(LinuxPlan, SegmentsInTheLegacyAreaAreRefused) {
  for (const std::uint64_t address : {0x9f000ULL, 0xa0000ULL, 0xe0000ULL, 0xff000ULL}) {
    Elf elf = Elf::vmlinux();
    elf.program_headers[1].p_paddr = address;
    elf.program_headers[1].p_memsz = 0x1001;
    EXPECT_THAT(bad_input([&] { (void)linux_plan(elf.bytes()); }),
                AllOf(HasSubstr("not in the guest's RAM"), HasSubstr("linked at 0x100000 or above")));
  }
}

TEST(LinuxPlan, SegmentsOverOurTablesAreRefused) {
  Elf pvh = Elf::vmlinux();
  pvh.program_headers[1].p_memsz = 0x1000;
  Elf elf64 = pvh;
  elf64.notes.clear();
  const auto refuse = [](Elf& elf, std::uint64_t address) {
    elf.program_headers[1].p_paddr = address;
    EXPECT_THAT(bad_input([&] { (void)linux_plan(elf.bytes(), std::nullopt); }),
                AllOf(HasSubstr("overlap"), HasSubstr("--kernel 'some/file'"), HasSubstr("0x100000 or above")))
        << address;
  };
  for (const std::uint64_t address : {std::uint64_t{0}, layout::kPvhStartInfo, layout::kCommandLine}) {
    refuse(pvh, address);
  }
  for (const std::uint64_t address : {std::uint64_t{0}, layout::kZeroPage, layout::kPml4, layout::kCommandLine}) {
    refuse(elf64, address);
  }
}

TEST(LinuxPlan, CommandLineAtTheKernelsLimitAndOneOver) {
  const std::string at_limit = std::string(2042, 'x') + " last";
  ASSERT_EQ(at_limit.size(), 2047U);
  for (const Bytes& kernel : {BzImage().bytes(), Elf::vmlinux().bytes()}) {
    EXPECT_EQ(text_of(blob_at(linux_plan(kernel, 4096, at_limit), layout::kCommandLine)), at_limit);
    EXPECT_THAT(bad_input([&] { (void)linux_plan(kernel, 4096, at_limit + "s"); }),
                AllOf(HasSubstr("--cmdline: 2048 characters are 1 more than the kernel takes (2047)"),
                      HasSubstr("lost: 'lasts'"), Not(HasSubstr("xxx"))));
  }
}

TEST(LinuxPlan, CommandLineAtOurAreasLimitAndOneOver) {
  BzImage kernel;
  kernel.header.cmdline_size = 1 << 20;
  const std::string at_limit(65535, 'x');
  EXPECT_EQ(blob_at(linux_plan(kernel.bytes(), 4096, at_limit), layout::kCommandLine).size(), 65536U);
  EXPECT_THAT(bad_input([&] { (void)linux_plan(kernel.bytes(), 4096, at_limit + "y"); }),
              AllOf(HasSubstr("65536 characters are 1 more than the VMM takes (65535)")));
}

TEST(LinuxPlan, CommandLineWithControlCharactersIsRefused) {
  using namespace std::string_view_literals;
  EXPECT_THAT(bad_input([&] { (void)linux_plan(BzImage().bytes(), 4096, "quiet\ninit=/x"sv); }), HasSubstr("0x0a"));
  EXPECT_THAT(bad_input([&] { (void)linux_plan(BzImage().bytes(), 4096, "quiet\0init=/x"sv); }), HasSubstr("0x00"));
}

TEST(LinuxPlan, InitrdThatDoesNotFitIsRefused) {
  // 256 MiB less the kernel's 40 MiB.
  EXPECT_EQ(linux_plan(BzImage().bytes(), 216 * kMiB).segments.back().address, 40 * kMiB);
  EXPECT_THAT(
      bad_input([&] { (void)linux_plan(BzImage().bytes(), 216 * kMiB + 1); }),
      AllOf(HasSubstr("--initrd: 226492417 bytes do not fit"), HasSubstr("0x7fffffff"), HasSubstr("0x10000000")));
  EXPECT_THAT(bad_input([&] { (void)linux_plan(BzImage().bytes(), 0); }), HasSubstr("empty"));
}

TEST(LinuxPlan, VcpuCountIsChecked) {
  EXPECT_EQ(linux_plan(BzImage().bytes(), 4096, "", 256 * kMiB, 64).registers.size(), 1U);
  for (const unsigned vcpus : {0U, 65U, ~0U}) {
    EXPECT_THAT(bad_input([&] { (void)linux_plan(BzImage().bytes(), 4096, "", 256 * kMiB, vcpus); }),
                AllOf(HasSubstr("--cpus"), HasSubstr("1 to 64")));
    EXPECT_THAT(bad_input([&] { (void)payload_plan(Elf::payload().bytes(), "", 64 * kMiB, vcpus); }),
                HasSubstr("--cpus"));
  }
}

// ---- payloads ----

TEST(PayloadPlan, InformationArgumentsAndTables) {
  const BootPlan plan = payload_plan(Elf::payload().bytes());
  EXPECT_THAT(plan.segments, ElementsAre(FileSegment{PlanFile::kKernel, 0x1000, 0x800, 0x400000},
                                         FileSegment{PlanFile::kKernel, 0x2000, 0x1000, 0x401000}));
  const Bytes& info = blob_at(plan, layout::kPayloadInfo);
  ASSERT_EQ(info.size(), 40U);
  EXPECT_EQ(get<std::uint32_t>(info, 0), 0x464e4950U);
  EXPECT_EQ(get<std::uint32_t>(info, 4), 2U);
  EXPECT_EQ(get<std::uint64_t>(info, 8), 64 * kMiB);
  EXPECT_EQ(get<std::uint64_t>(info, 16), 2'100'000U);
  EXPECT_EQ(get<std::uint64_t>(info, 24), layout::kPayloadArgs);
  EXPECT_EQ(get<std::uint64_t>(info, 32), 25U);
  EXPECT_EQ(text_of(blob_at(plan, layout::kPayloadArgs)), "spin_us=1000 rounds=10000");
  EXPECT_EQ(blob_at(plan, layout::kGdt), Gdt::payload().bytes());
  EXPECT_EQ(blob_at(plan, layout::kPml4), identity_page_tables());
  EXPECT_EQ(plan.blobs.size(), 4U);  // no ACPI
}

TEST(PayloadPlan, EveryVcpuStartsWithAStackOfItsOwn) {
  for (const auto& [memory_bytes, top] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{64 * kMiB, 64 * kMiB}, {8 * kGiB, 3 * kGiB}}) {
    const BootPlan plan = payload_plan(Elf::payload().bytes(), "", memory_bytes, 64);
    ASSERT_EQ(plan.registers.size(), 64U);
    for (unsigned vcpu = 0; vcpu < 64; ++vcpu) {
      EXPECT_EQ(plan.registers[vcpu], payload_registers(0x400000, vcpu, layout::kPayloadInfo, top - vcpu * 16 * kKiB));
    }
  }
}

TEST(PayloadPlan, StacksDoNotLieOverThePayload) {
  Elf elf = Elf::payload();
  elf.program_headers[1].p_memsz = 64 * kMiB - 32 * kKiB - 0x401000;  // up to the stacks of two vCPUs
  expect_apart_and_in_ram(payload_plan(elf.bytes()), 64 * kMiB);
  ++elf.program_headers[1].p_memsz;
  EXPECT_THAT(bad_input([&] { (void)payload_plan(elf.bytes()); }), AllOf(HasSubstr("stacks"), HasSubstr("overlap")));
}

TEST(PayloadPlan, StartsAtTheElfEntryInSpiteOfANote) {
  const BootPlan plan = payload_plan(Elf::vmlinux().bytes());
  EXPECT_EQ(plan.registers.front().rip, 0x1000000U);
  EXPECT_TRUE(plan.registers.front().cs.long_mode);
}

TEST(PayloadPlan, EntryOutsideItsSegmentsIsRefusedInSpiteOfANote) {
  Elf elf = Elf::vmlinux();
  elf.header.e_entry = 0xffffffff81000000;
  EXPECT_EQ(linux_plan(elf.bytes()).registers.front().rip, 0x1000040U);
  EXPECT_THAT(bad_input([&] { (void)payload_plan(elf.bytes()); }), HasSubstr("entry point at 0xffffffff81000000"));
}

TEST(PayloadPlan, BzImageIsRefused) {
  EXPECT_THAT(bad_input([&] { (void)payload_plan(BzImage().bytes()); }),
              AllOf(HasSubstr("bzImage"), HasSubstr("--kernel boots it")));
}

TEST(PayloadPlan, ArgumentsAtTheLimitAndOneOver) {
  const std::string at_limit(3839, 'x');
  EXPECT_EQ(text_of(blob_at(payload_plan(Elf::payload().bytes(), at_limit), layout::kPayloadArgs)), at_limit);
  EXPECT_THAT(bad_input([&] { (void)payload_plan(Elf::payload().bytes(), at_limit + "y"); }),
              HasSubstr("3840 characters are 1 more than a payload takes (3839)"));
}

}  // namespace
}  // namespace vmm::boot::test
