// SPDX-License-Identifier: Apache-2.0
#include "boot/acpi.hpp"

#include <fmt/format.h>
#include <numeric>
#include <span>
#include <string_view>

#include "base/error.hpp"
#include "boot/aml.hpp"
#include "memory/layout.hpp"

namespace vmm::boot {
namespace {

namespace layout = memory::layout;

constexpr std::string_view kOemId = "IDLWAK";
constexpr std::string_view kOemTableId = "IDLEWAKE";
constexpr std::string_view kCreatorId = "VMM ";

constexpr std::size_t kHeaderBytes = 36;
constexpr std::size_t kHeaderChecksum = 9;

// Numbers in a table, little endian, one after another.
class Writer {
 public:
  Writer& u8(unsigned value) { return put(value, 1); }
  Writer& u16(unsigned value) { return put(value, 2); }
  Writer& u32(std::uint64_t value) { return put(value, 4); }
  Writer& u64(std::uint64_t value) { return put(value, 8); }
  Writer& text(std::string_view value) {
    for (const char c : value) bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Writer& zeros(std::size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  Writer& raw(std::span<const std::byte> value) {
    bytes_.insert(bytes_.end(), value.begin(), value.end());
    return *this;
  }
  // Generic Address Structure (5.2.3.2) of an I/O port; access: 1 byte, 2 word.
  Writer& io_register(std::uint16_t port, unsigned bits, unsigned access) {
    return u8(1).u8(bits).u8(0).u8(access).u64(port);
  }
  std::vector<std::byte>& bytes() { return bytes_; }
  std::size_t size() const { return bytes_.size(); }

 private:
  Writer& put(std::uint64_t value, unsigned count) {
    for (unsigned i = 0; i < count; ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
    return *this;
  }
  std::vector<std::byte> bytes_;
};

// The byte that makes the sum of all zero.
std::byte checksum(std::span<const std::byte> bytes) {
  const unsigned sum = std::accumulate(
      bytes.begin(), bytes.end(), 0U, [](unsigned total, std::byte b) { return total + std::to_integer<unsigned>(b); });
  return static_cast<std::byte>((0x100 - (sum & 0xff)) & 0xff);
}

// A table with its header (5.2.6), length and checksum.
std::vector<std::byte> table(std::string_view signature, unsigned revision, std::span<const std::byte> body) {
  Writer writer;
  writer.text(signature)
      .u32(kHeaderBytes + body.size())
      .u8(revision)
      .u8(0)  // checksum
      .text(kOemId)
      .text(kOemTableId)
      .u32(1)  // OEM revision
      .text(kCreatorId)
      .u32(1)  // creator revision
      .raw(body);
  writer.bytes()[kHeaderChecksum] = checksum(writer.bytes());
  return std::move(writer.bytes());
}

// 5.2.10. Only the global lock in it is of use; kernels that are not hardware-reduced expect it.
std::vector<std::byte> facs() {
  constexpr std::size_t kFacsBytes = 64;
  Writer writer;
  writer.text("FACS").u32(kFacsBytes).zeros(24).u8(2);  // hardware signature to OSPM flags; version 2
  writer.zeros(kFacsBytes - writer.size());
  return std::move(writer.bytes());
}

// 5.2.9; the offsets of table 5.9 in comments where a group begins.
std::vector<std::byte> fadt(std::uint64_t facs_address, std::uint64_t dsdt_address) {
  constexpr unsigned kRevision = 6;
  constexpr unsigned kMinorRevision = 5;
  constexpr unsigned kPmEventBytes = 4;
  constexpr unsigned kPmControlBytes = 2;
  constexpr unsigned kNoC2LatencyUs = 101;   // above 100: there is no C2
  constexpr unsigned kNoC3LatencyUs = 1001;  // above 1000: there is no C3
  constexpr unsigned kNoVga = 1U << 2;
  constexpr unsigned kNoCmosRtc = 1U << 5;  // and bit 1 is clear: no 8042
  constexpr std::uint32_t kWbinvd = 1U << 0;
  constexpr std::uint32_t kProcC1 = 1U << 2;
  constexpr std::uint32_t kNoPowerButton = 1U << 4;
  constexpr std::uint32_t kNoSleepButton = 1U << 5;
  constexpr std::uint32_t kNoFixedRtcWake = 1U << 6;
  constexpr std::uint32_t kResetRegister = 1U << 10;
  constexpr unsigned kResetValue = 6;
  constexpr std::size_t kGasBytes = 12;

  Writer writer;
  writer.u32(facs_address).u32(dsdt_address);                                    // 36
  writer.u8(0).u8(0).u16(layout::kSciGsi);                                       // 44: reserved, profile, SCI
  writer.u32(0).u8(0).u8(0).u8(0).u8(0);                                         // 48: SMI_CMD 0: always in ACPI mode
  writer.u32(layout::kPmEventBlock).u32(0).u32(layout::kPmControlBlock).u32(0);  // 56: PM1a and PM1b
  writer.u32(0).u32(0).u32(0).u32(0);                                            // 72: no PM2, PM timer, GPEs
  writer.u8(kPmEventBytes).u8(kPmControlBytes).zeros(6);                         // 88: lengths, CST_CNT
  writer.u16(kNoC2LatencyUs).u16(kNoC3LatencyUs).u16(0).u16(0);                  // 96
  writer.u8(0).u8(0).u8(0).u8(0).u8(0);                                          // 104: duty cycle, RTC indices
  writer.u16(kNoVga | kNoCmosRtc).u8(0);                                         // 109: IAPC_BOOT_ARCH
  writer.u32(kWbinvd | kProcC1 | kNoPowerButton | kNoSleepButton | kNoFixedRtcWake | kResetRegister);  // 112
  writer.io_register(layout::kResetPort, 8, 1).u8(kResetValue);                                        // 116
  writer.u16(0).u8(kMinorRevision);                                                                    // 129
  writer.u64(0).u64(dsdt_address);                                                       // 132: the FACS is named above
  writer.io_register(layout::kPmEventBlock, 8 * kPmEventBytes, 2).zeros(kGasBytes);      // 148
  writer.io_register(layout::kPmControlBlock, 8 * kPmControlBytes, 2).zeros(kGasBytes);  // 172
  writer.zeros(4 * kGasBytes);                                                           // 196: PM2, PM timer, GPEs
  writer.zeros(2 * kGasBytes).u64(0);                                                    // 244: sleep registers, vendor
  return table("FACP", kRevision, writer.bytes());
}

// 5.2.12.
std::vector<std::byte> madt(unsigned vcpus) {
  constexpr unsigned kRevision = 5;
  constexpr unsigned kPcatCompatible = 1;  // there are two 8259s
  constexpr unsigned kLocalApic = 0;
  constexpr unsigned kIoApic = 1;
  constexpr unsigned kInterruptOverride = 2;
  constexpr unsigned kLocalApicNmi = 4;
  constexpr unsigned kEnabled = 1;
  constexpr unsigned kLevelActiveHigh = 0xd;  // MPS INTI flags (table 5.26)
  constexpr unsigned kAllProcessors = 0xff;
  constexpr unsigned kNmiLint = 1;

  Writer writer;
  writer.u32(layout::kLocalApic).u32(kPcatCompatible);
  for (unsigned id = 0; id < vcpus; ++id) writer.u8(kLocalApic).u8(8).u8(id).u8(id).u32(kEnabled);
  writer.u8(kIoApic).u8(12).u8(0).u8(0).u32(layout::kIoApic).u32(0);
  // The ISA interrupts need no override: KVM's default routing connects GSI n with pin n, IRQ 0 included.
  writer.u8(kInterruptOverride).u8(10).u8(0).u8(layout::kSciGsi).u32(layout::kSciGsi).u16(kLevelActiveHigh);
  writer.u8(kLocalApicNmi).u8(6).u8(kAllProcessors).u16(0).u8(kNmiLint);
  return table("APIC", kRevision, writer.bytes());
}

std::vector<std::byte> dsdt(unsigned vcpus) {
  constexpr unsigned kRevision = 2;  // 64-bit integers
  constexpr std::uint8_t kUartPorts = 8;
  const aml::Bytes s5 = aml::name(
      "\\_S5_", aml::package({aml::integer(layout::kSleepTypeS5), aml::integer(0), aml::integer(0), aml::integer(0)}));
  aml::Bytes devices = aml::device(
      "COM1", aml::concatenate({aml::name("_HID", aml::eisa_id("PNP0501")), aml::name("_UID", aml::integer(1)),
                                aml::name("_CRS", aml::resource_template({aml::io(layout::kCom1, kUartPorts),
                                                                          aml::irq(layout::kCom1Gsi)}))}));
  for (unsigned id = 0; id < vcpus; ++id) {
    // No _CST and no P_BLK: the guest's own idle drivers decide, none of ACPI's registers itself.
    const aml::Bytes processor = aml::device(
        fmt::format("C{:03X}", id),
        aml::concatenate({aml::name("_HID", aml::string("ACPI0007")), aml::name("_UID", aml::integer(id))}));
    devices.insert(devices.end(), processor.begin(), processor.end());
  }
  return table("DSDT", kRevision, aml::concatenate({s5, aml::scope("\\_SB_", devices)}));
}

std::vector<std::byte> xsdt(std::initializer_list<std::uint64_t> addresses) {
  Writer writer;
  for (const std::uint64_t address : addresses) writer.u64(address);
  return table("XSDT", 1, writer.bytes());
}

// 5.2.5.3; revision 2 has a checksum of its first 20 bytes and one of all.
std::vector<std::byte> rsdp(std::uint64_t xsdt_address) {
  constexpr std::size_t kFirstBytes = 20;
  constexpr std::size_t kFirstChecksum = 8;
  constexpr std::size_t kExtendedChecksum = 32;
  constexpr std::size_t kBytes = 36;
  Writer writer;
  writer.text("RSD PTR ").u8(0).text(kOemId).u8(2).u32(0).u32(kBytes).u64(xsdt_address).u8(0).zeros(3);
  std::vector<std::byte>& bytes = writer.bytes();
  bytes[kFirstChecksum] = checksum(std::span(bytes).first(kFirstBytes));
  bytes[kExtendedChecksum] = checksum(bytes);
  return std::move(bytes);
}

// Addresses one after another in the ACPI area.
class Area {
 public:
  std::uint64_t take(std::size_t bytes, std::uint64_t alignment) {
    const std::uint64_t address = (next_ + alignment - 1) & ~(alignment - 1);
    next_ = address + bytes;
    if (next_ > layout::kAcpiTablesEnd) {
      throw base::BadInput(
          fmt::format("--cpus: the ACPI tables would reach {:#x}, their area ends at {:#x}; fewer vCPUs "
                      "would work",
                      next_, layout::kAcpiTablesEnd));
    }
    return address;
  }

 private:
  std::uint64_t next_ = layout::kAcpiTables;
};

}  // namespace

std::vector<Blob> acpi_tables(unsigned vcpus) {
  constexpr std::uint64_t kAlignment = 16;
  constexpr std::uint64_t kFacsAlignment = 64;
  // Addresses first: tables hold those of others, but no length depends on an address.
  Area area;
  const std::uint64_t rsdp_address = area.take(rsdp(0).size(), kAlignment);
  std::vector<std::byte> facs_bytes = facs();
  const std::uint64_t facs_address = area.take(facs_bytes.size(), kFacsAlignment);
  const std::uint64_t xsdt_address = area.take(xsdt({0, 0}).size(), kAlignment);
  const std::uint64_t fadt_address = area.take(fadt(0, 0).size(), kAlignment);
  std::vector<std::byte> madt_bytes = madt(vcpus);
  const std::uint64_t madt_address = area.take(madt_bytes.size(), kAlignment);
  std::vector<std::byte> dsdt_bytes = dsdt(vcpus);
  const std::uint64_t dsdt_address = area.take(dsdt_bytes.size(), kAlignment);

  std::vector<Blob> blobs;
  blobs.push_back({rsdp_address, rsdp(xsdt_address), "ACPI RSDP"});
  blobs.push_back({facs_address, std::move(facs_bytes), "ACPI FACS"});
  blobs.push_back({xsdt_address, xsdt({fadt_address, madt_address}), "ACPI XSDT"});
  blobs.push_back({fadt_address, fadt(facs_address, dsdt_address), "ACPI FADT"});
  blobs.push_back({madt_address, std::move(madt_bytes), "ACPI MADT"});
  blobs.push_back({dsdt_address, std::move(dsdt_bytes), "ACPI DSDT"});
  return blobs;
}

}  // namespace vmm::boot
