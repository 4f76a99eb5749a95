// SPDX-License-Identifier: Apache-2.0
// The GDT, the page tables and the initial registers: what a vCPU needs before its first instruction.
#include "boot/gdt.hpp"
#include "boot/page_tables.hpp"
#include "boot/register_state.hpp"
#include "images.hpp"
#include "memory/layout.hpp"

namespace vmm::boot::test {
namespace {

namespace layout = memory::layout;

TEST(Gdt, Linux64HasBootCsAndDs) {
  const Bytes bytes = Gdt::linux64().bytes();
  ASSERT_EQ(bytes.size(), 48U);
  EXPECT_EQ(get<std::uint64_t>(bytes, 0x00), 0U);
  EXPECT_EQ(get<std::uint64_t>(bytes, 0x08), 0U);
  EXPECT_EQ(get<std::uint64_t>(bytes, 0x10), 0x00af9b000000ffffU);
  EXPECT_EQ(get<std::uint64_t>(bytes, 0x18), 0x00cf93000000ffffU);
  EXPECT_EQ(get<std::uint64_t>(bytes, 0x20), 0x00008b0000000067U);
  EXPECT_EQ(get<std::uint64_t>(bytes, 0x28), 0U);
}

TEST(Gdt, PayloadAndPvh) {
  const Bytes payload = Gdt::payload().bytes();
  EXPECT_EQ(get<std::uint64_t>(payload, 0x08), 0x00af9b000000ffffU);
  EXPECT_EQ(get<std::uint64_t>(payload, 0x10), 0x00cf93000000ffffU);
  EXPECT_EQ(get<std::uint64_t>(payload, 0x18), 0x00008b0000000067U);
  const Bytes pvh = Gdt::pvh().bytes();
  EXPECT_EQ(get<std::uint64_t>(pvh, 0x08), 0x00cf9b000000ffffU);
  EXPECT_EQ(get<std::uint64_t>(pvh, 0x10), 0x00cf93000000ffffU);
  EXPECT_EQ(get<std::uint64_t>(pvh, 0x18), 0x00008b0000000067U);
}

TEST(Gdt, FitsBelowTheNextTable) {
  EXPECT_LE(layout::kGdt + Gdt::linux64().limit() + 1, layout::kPvhStartInfo);
  EXPECT_EQ(Gdt::linux64().limit(), 47);
}

TEST(PageTables, MapFourGibOneToOne) {
  const Bytes tables = identity_page_tables();
  ASSERT_EQ(tables.size(), 6U * 4096);
  EXPECT_EQ(get<std::uint64_t>(tables, 0), layout::kPdpt | 3);
  for (std::size_t i = 1; i < 512; ++i) ASSERT_EQ(get<std::uint64_t>(tables, i * 8), 0U);
  // Walk it as the CPU does, from every 2 MiB of the first 4 GiB.
  const auto table_at = [&](std::uint64_t address) { return static_cast<std::size_t>(address - layout::kPml4); };
  for (std::uint64_t address = 0; address < 4 * layout::kGiB; address += 2 * layout::kMiB) {
    const auto pdpte = get<std::uint64_t>(tables, table_at(layout::kPdpt) + (address >> 30) * 8);
    ASSERT_EQ(pdpte & 0xfff, 3U);
    const auto pde = get<std::uint64_t>(tables, table_at(pdpte & ~0xfffULL) + (address >> 21 & 511) * 8);
    ASSERT_EQ(pde & ~0x1fffffULL, address);
    const bool device = address >= 0xfec00000;
    ASSERT_EQ(pde & 0x1fffff, device ? 0x9bU : 0x83U) << std::hex << address;
  }
  for (std::size_t i = 4; i < 512; ++i) ASSERT_EQ(get<std::uint64_t>(tables, 4096 + i * 8), 0U);
}

TEST(PageTables, EndBelowTheCommandLine) {
  EXPECT_LE(layout::kPml4 + identity_page_tables().size(), layout::kCommandLine);
}

TEST(Registers, Linux64FollowsTheBootProtocol) {
  const RegisterState state = linux64_registers(0x1000200, 0x7000);
  EXPECT_EQ(state.rip, 0x1000200U);
  EXPECT_EQ(state.rsi, 0x7000U);
  EXPECT_EQ(state.rflags, 2U);  // interrupts off
  EXPECT_EQ(state.cr0, 0x80000031U);
  EXPECT_EQ(state.cr3, layout::kPml4);
  EXPECT_EQ(state.cr4, 0x20U);
  EXPECT_EQ(state.efer, 0x500U);
  EXPECT_EQ(state.cs.selector, 0x10);
  EXPECT_EQ(state.cs.type, 0xb);
  EXPECT_TRUE(state.cs.long_mode);
  EXPECT_FALSE(state.cs.default_big);
  EXPECT_TRUE(state.cs.present);
  EXPECT_TRUE(state.cs.code_or_data);
  EXPECT_TRUE(state.cs.granularity);
  EXPECT_EQ(state.cs.limit, 0xffffffffU);
  EXPECT_EQ(state.cs.base, 0U);
  EXPECT_EQ(state.ds.selector, 0x18);
  EXPECT_EQ(state.ds.type, 0x3);
  EXPECT_EQ(state.ds.limit, 0xffffffffU);
  EXPECT_EQ(state.tr.type, 0xb);
  EXPECT_EQ(state.tr.limit, 0x67U);
  EXPECT_FALSE(state.tr.code_or_data);
  EXPECT_TRUE(state.tr.present);
  EXPECT_TRUE(state.ldt.unusable);
  EXPECT_EQ(state.gdt, (TableState{layout::kGdt, 47}));
  EXPECT_EQ(state.idt, TableState{});
}

TEST(Registers, PvhIsFlat32BitWithoutPaging) {
  const RegisterState state = pvh_registers(0x1000040, 0x6000);
  EXPECT_EQ(state.rip, 0x1000040U);
  EXPECT_EQ(state.rbx, 0x6000U);
  EXPECT_EQ(state.rsi, 0U);
  EXPECT_EQ(state.cr0, 0x11U);
  EXPECT_EQ(state.cr4, 0U);
  EXPECT_EQ(state.efer, 0U);
  EXPECT_EQ(state.rflags, 2U);
  EXPECT_TRUE(state.cs.default_big);
  EXPECT_FALSE(state.cs.long_mode);
  EXPECT_EQ(state.cs.limit, 0xffffffffU);
  EXPECT_EQ(state.ds.limit, 0xffffffffU);
  EXPECT_EQ(state.tr.limit, 0x67U);
}

TEST(Registers, PayloadVcpuHasItsIndexAndStack) {
  const RegisterState state = payload_registers(0x400000, 3, 0x8000, 0x3ff4000);
  EXPECT_EQ(state.rip, 0x400000U);
  EXPECT_EQ(state.rdi, 3U);
  EXPECT_EQ(state.rsi, 0x8000U);
  EXPECT_EQ(state.rsp, 0x3ff4000U);
  EXPECT_EQ(state.cs.selector, 0x8);
  EXPECT_EQ(state.ds.selector, 0x10);
  EXPECT_TRUE(state.cs.long_mode);
  EXPECT_EQ(state.cr0, 0x80000031U);
  EXPECT_EQ(state.efer, 0x500U);
}

}  // namespace
}  // namespace vmm::boot::test
