// SPDX-License-Identifier: Apache-2.0
// The ACPI tables, read back from their bytes by the offsets of ACPI 6.5, and by iasl where it is installed.
#include "boot/acpi.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <unistd.h>

#include "boot/aml.hpp"
#include "images.hpp"
#include "memory/layout.hpp"

namespace vmm::boot::test {
namespace {

namespace layout = memory::layout;
using testing::HasSubstr;
using testing::Not;

Bytes hex(std::initializer_list<unsigned> values) {
  Bytes bytes;
  for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

std::string text_at(std::span<const std::byte> bytes, std::size_t offset, std::size_t count) {
  std::string text;
  for (const std::byte b : bytes.subspan(offset, count)) text += static_cast<char>(b);
  return text;
}

unsigned sum_of(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte b : bytes) sum += std::to_integer<unsigned>(b);
  return sum & 0xff;
}

// The tables by signature, found as a kernel finds them: RSDP, XSDT, FADT.
struct Tables {
  explicit Tables(unsigned vcpus) : blobs(acpi_tables(vcpus)) {
    rsdp = at(layout::kAcpiTables);
    xsdt = at(get<std::uint64_t>(rsdp, 24));
    for (std::size_t i = 36; i + 8 <= xsdt.size(); i += 8) {
      const Bytes table = at(get<std::uint64_t>(xsdt, i));
      by_signature[text_at(table, 0, 4)] = table;
    }
    fadt = by_signature["FACP"];
    madt = by_signature["APIC"];
    dsdt = at(get<std::uint64_t>(fadt, 140));
    facs = at(get<std::uint32_t>(fadt, 36));
  }
  Bytes at(std::uint64_t address) const {
    for (const Blob& blob : blobs) {
      if (blob.address == address) return blob.bytes;
    }
    ADD_FAILURE() << "no table at " << address;
    return Bytes(512);
  }
  std::vector<Blob> blobs;
  Bytes rsdp, xsdt, fadt, madt, dsdt, facs;
  std::map<std::string, Bytes> by_signature;
};

TEST(Acpi, RsdpIsWhereKernelsScanForIt) {
  const Tables tables(2);
  EXPECT_EQ(text_at(tables.rsdp, 0, 8), "RSD PTR ");
  ASSERT_EQ(tables.rsdp.size(), 36U);
  EXPECT_EQ(layout::kAcpiTables % 16, 0U);
  EXPECT_EQ(get<std::uint8_t>(tables.rsdp, 15), 2);
  EXPECT_EQ(get<std::uint32_t>(tables.rsdp, 16), 0U);  // no RSDT
  EXPECT_EQ(get<std::uint32_t>(tables.rsdp, 20), 36U);
  EXPECT_EQ(sum_of(std::span(tables.rsdp).first(20)), 0U);
  EXPECT_EQ(sum_of(tables.rsdp), 0U);
}

TEST(Acpi, EveryTableHasItsLengthAndChecksum) {
  for (const unsigned vcpus : {1U, 2U, 8U, 64U}) {
    const Tables tables(vcpus);
    for (const Bytes& table : {tables.xsdt, tables.fadt, tables.madt, tables.dsdt}) {
      EXPECT_EQ(get<std::uint32_t>(table, 4), table.size());
      EXPECT_EQ(sum_of(table), 0U) << text_at(table, 0, 4);
    }
    EXPECT_EQ(text_at(tables.xsdt, 0, 4), "XSDT");
    EXPECT_EQ(text_at(tables.dsdt, 0, 4), "DSDT");
    EXPECT_EQ(tables.xsdt.size(), 36U + 2 * 8);
  }
}

TEST(Acpi, TablesLieApartInTheAcpiArea) {
  const std::vector<Blob> blobs = acpi_tables(64);
  ASSERT_EQ(blobs.size(), 6U);
  std::uint64_t end = layout::kAcpiTables;
  for (const Blob& blob : blobs) {
    EXPECT_GE(blob.address, end) << blob.name;
    EXPECT_EQ(blob.address % 16, 0U) << blob.name;
    end = blob.address + blob.bytes.size();
  }
  EXPECT_LE(end, layout::kAcpiTablesEnd);
}

TEST(Acpi, FadtDescribesThePowerManagement) {
  const Tables tables(1);
  const Bytes& fadt = tables.fadt;
  ASSERT_EQ(fadt.size(), 276U);
  EXPECT_EQ(get<std::uint8_t>(fadt, 8), 6);
  EXPECT_EQ(get<std::uint8_t>(fadt, 131), 5);
  EXPECT_EQ(get<std::uint32_t>(fadt, 40), get<std::uint64_t>(fadt, 140));  // DSDT, X_DSDT
  EXPECT_EQ(get<std::uint16_t>(fadt, 46), 9);                              // SCI
  EXPECT_EQ(get<std::uint32_t>(fadt, 48), 0U);                             // SMI_CMD
  EXPECT_EQ(get<std::uint32_t>(fadt, 56), 0x600U);                         // PM1a_EVT_BLK
  EXPECT_EQ(get<std::uint32_t>(fadt, 64), 0x604U);                         // PM1a_CNT_BLK
  EXPECT_EQ(get<std::uint32_t>(fadt, 76), 0U);                             // PM_TMR_BLK
  EXPECT_EQ(get<std::uint8_t>(fadt, 88), 4);
  EXPECT_EQ(get<std::uint8_t>(fadt, 89), 2);
  EXPECT_EQ(get<std::uint8_t>(fadt, 91), 0);
  EXPECT_GT(get<std::uint16_t>(fadt, 96), 100);    // no C2
  EXPECT_GT(get<std::uint16_t>(fadt, 98), 1000);   // no C3
  EXPECT_EQ(get<std::uint16_t>(fadt, 109), 0x24);  // no VGA, no CMOS RTC, no 8042
  const auto flags = get<std::uint32_t>(fadt, 112);
  EXPECT_NE(flags & 1U << 0, 0U);   // WBINVD
  EXPECT_NE(flags & 1U << 10, 0U);  // RESET_REG_SUP
  EXPECT_EQ(flags & 1U << 20, 0U);  // not hardware-reduced
  EXPECT_EQ(Bytes(fadt.begin() + 116, fadt.begin() + 129), hex({1, 8, 0, 1, 0xf9, 0x0c, 0, 0, 0, 0, 0, 0, 6}));
  EXPECT_EQ(Bytes(fadt.begin() + 148, fadt.begin() + 160), hex({1, 32, 0, 2, 0x00, 0x06, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Bytes(fadt.begin() + 172, fadt.begin() + 184), hex({1, 16, 0, 2, 0x04, 0x06, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Bytes(fadt.begin() + 184, fadt.end()), Bytes(276 - 184));
}

TEST(Acpi, FacsIsAligned) {
  const Tables tables(1);
  EXPECT_EQ(text_at(tables.facs, 0, 4), "FACS");
  EXPECT_EQ(tables.facs.size(), 64U);
  EXPECT_EQ(get<std::uint32_t>(tables.facs, 4), 64U);
  EXPECT_EQ(get<std::uint8_t>(tables.facs, 32), 2);  // version
  EXPECT_EQ(get<std::uint32_t>(tables.fadt, 36) % 64, 0U);
}

TEST(Acpi, MadtListsEveryVcpu) {
  for (const unsigned vcpus : {1U, 3U, 64U}) {
    const Bytes madt = Tables(vcpus).madt;
    ASSERT_EQ(madt.size(), 44U + 8 * vcpus + 12 + 10 + 6);
    EXPECT_EQ(get<std::uint32_t>(madt, 36), 0xfee00000U);
    EXPECT_EQ(get<std::uint32_t>(madt, 40), 1U);  // PCAT_COMPAT
    std::size_t at = 44;
    for (unsigned id = 0; id < vcpus; ++id, at += 8) {
      EXPECT_EQ(
          Bytes(madt.begin() + static_cast<std::ptrdiff_t>(at), madt.begin() + static_cast<std::ptrdiff_t>(at) + 8),
          hex({0, 8, id, id, 1, 0, 0, 0}));
    }
    const Bytes rest(madt.begin() + static_cast<std::ptrdiff_t>(at), madt.end());
    EXPECT_EQ(rest, hex({1, 12, 0,    0, 0x00, 0x00, 0xc0, 0xfe, 0,    0, 0, 0,  // I/O APIC 0 at GSI 0
                         2, 10, 0,    9, 9,    0,    0,    0,    0x0d, 0,        // SCI: level, active high
                         4, 6,  0xff, 0, 0,    1}));                             // NMI on LINT1 of all
  }
}

TEST(Acpi, DsdtByteForByte) {
  const Bytes dsdt = Tables(1).dsdt;
  EXPECT_EQ(Bytes(dsdt.begin() + 36, dsdt.end()),
            hex({0x08, 0x5c, '_',  'S',  '5',  '_',  0x12, 0x07, 0x04, 0x0a, 0x05, 0x00, 0x00, 0x00,  // Name (\_S5, …)
                 0x10, 0x40, 0x05, 0x5c, '_',  'S',  'B',  '_',                                       // Scope (\_SB)
                 0x5b, 0x82, 0x2b, 'C',  'O',  'M',  '1',                                             // Device (COM1)
                 0x08, '_',  'H',  'I',  'D',  0x0c, 0x41, 0xd0, 0x05, 0x01,                          // PNP0501
                 0x08, '_',  'U',  'I',  'D',  0x01,                                                  //
                 0x08, '_',  'C',  'R',  'S',  0x11, 0x10, 0x0a, 0x0d,                                // 13 bytes:
                 0x47, 0x01, 0xf8, 0x03, 0xf8, 0x03, 0x01, 0x08,                                      // 0x3f8, 8 ports
                 0x22, 0x10, 0x00, 0x79, 0x00,                                                        // IRQ 4, end
                 0x5b, 0x82, 0x1a, 'C',  '0',  '0',  '0',                                             // Device (C000)
                 0x08, '_',  'H',  'I',  'D',  0x0d, 'A',  'C',  'P',  'I',  '0',  '0',  '0',  '7',  0x00,  //
                 0x08, '_',  'U',  'I',  'D',  0x00}));
}

TEST(Aml, PackageLengths) {
  // The longest one-byte length, then the first of two and of three bytes; each counts itself.
  const auto head = [](std::size_t content) {
    const Bytes scope = aml::scope("ABCD", Bytes(content));
    return Bytes(scope.begin(), scope.begin() + 4);
  };
  EXPECT_EQ(head(58), hex({0x10, 0x3f, 'A', 'B'}));
  EXPECT_EQ(head(59), hex({0x10, 0x41, 0x04, 'A'}));
  EXPECT_EQ(head(4095 - 6), hex({0x10, 0x4f, 0xff, 'A'}));
  EXPECT_EQ(head(4096 - 6), hex({0x10, 0x81, 0x00, 0x01}));
}

TEST(Aml, Integers) {
  EXPECT_EQ(aml::integer(0), hex({0x00}));
  EXPECT_EQ(aml::integer(1), hex({0x01}));
  EXPECT_EQ(aml::integer(2), hex({0x0a, 0x02}));
  EXPECT_EQ(aml::integer(0xff), hex({0x0a, 0xff}));
  EXPECT_EQ(aml::integer(0x100), hex({0x0b, 0x00, 0x01}));
  EXPECT_EQ(aml::integer(0x12345678), hex({0x0c, 0x78, 0x56, 0x34, 0x12}));
}

TEST(Aml, EisaIds) {
  EXPECT_EQ(aml::eisa_id("PNP0501"), hex({0x0c, 0x41, 0xd0, 0x05, 0x01}));
  EXPECT_EQ(aml::eisa_id("PNP0A03"), hex({0x0c, 0x41, 0xd0, 0x0a, 0x03}));
}

// ---- by iasl, an independent reader ----

class Iasl : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("iasl -v >/dev/null 2>&1") != 0) GTEST_SKIP() << "iasl is not installed (acpica-tools)";
    std::string path = testing::TempDir() + "iasl-XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    directory_ = path;
  }
  void TearDown() override {
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  // The disassembly, with iasl's own remarks before it.
  std::string disassemble(const Bytes& table) const {
    const std::filesystem::path binary = directory_ / "table.dat";
    std::ofstream(binary, std::ios::binary)
        .write(reinterpret_cast<const char*>(table.data()), static_cast<std::streamsize>(table.size()));
    const std::string command = "cd '" + directory_.string() + "' && iasl -d table.dat >log 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return read("log") + read("table.dsl");
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(directory_ / name).rdbuf();
    return text.str();
  }
  static void expect_clean(const std::string& text) {
    for (const char* word : {"Error", "Warning", "Incorrect checksum", "Invalid", "**** "}) {
      EXPECT_THAT(text, Not(HasSubstr(word)));
    }
  }

  std::filesystem::path directory_;
};

TEST_F(Iasl, ReadsTheDsdt) {
  for (const unsigned vcpus : {1U, 2U, 64U}) {
    const std::string text = disassemble(Tables(vcpus).dsdt);
    expect_clean(text);
    EXPECT_THAT(text, HasSubstr("Name (\\_S5, Package (0x04)"));
    EXPECT_THAT(text, HasSubstr("EisaId (\"PNP0501\")"));
    EXPECT_THAT(text, HasSubstr("IRQNoFlags ()"));
    std::size_t processors = 0;
    for (std::size_t at = 0; (at = text.find("\"ACPI0007\"", at)) != std::string::npos; ++at) ++processors;
    EXPECT_EQ(processors, vcpus);
    // And it compiles again to the same bytes after the header.
    const std::string command = "cd '" + directory_.string() + "' && iasl -oa -p again table.dsl >again.log 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << read("again.log");
    EXPECT_EQ(read("again.aml").substr(36), read("table.dat").substr(36));
  }
}

TEST_F(Iasl, ReadsTheDataTables) {
  const Tables tables(64);
  const std::string fadt = disassemble(tables.fadt);
  expect_clean(fadt);
  EXPECT_THAT(fadt, HasSubstr("PM1A Event Block Address : 00000600"));
  EXPECT_THAT(fadt, HasSubstr("Reset Register Supported (V2) : 1"));
  EXPECT_THAT(fadt, HasSubstr("Value to cause reset : 06"));
  const std::string madt = disassemble(tables.madt);
  expect_clean(madt);
  EXPECT_THAT(madt, HasSubstr("Interrupt Source Override"));
  EXPECT_THAT(madt, HasSubstr("Local Apic ID : 3F"));
  const std::string xsdt = disassemble(tables.xsdt);
  expect_clean(xsdt);
  const std::string facs = disassemble(tables.facs);
  expect_clean(facs);
}

}  // namespace
}  // namespace vmm::boot::test
