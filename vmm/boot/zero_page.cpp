// SPDX-License-Identifier: Apache-2.0
#include "boot/zero_page.hpp"

#include <algorithm>
#include <cstddef>
#include <fmt/format.h>

#include "base/error.hpp"
#include "boot/linux_abi.hpp"

namespace vmm::boot {
namespace {

constexpr std::uint8_t kLoaderUnregistered = 0xff;  // boot.rst, "type_of_loader"
constexpr std::uint16_t kVideoModeNormal = 0xffff;  // boot.rst, "vid_mode"
constexpr std::uint16_t kElfVersion = 0x020f;       // the newest of boot.rst's versions that this file fills in

constexpr std::uint32_t low(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}
constexpr std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

}  // namespace

boot_params make_zero_page(const KernelImage& kernel, const BootInfo& info) {
  static_assert(sizeof(boot_params) == 4096);
  static_assert(offsetof(boot_params, hdr) == linux_abi::kSetupHeader);
  static_assert(offsetof(boot_params, edd_mbr_sig_buffer) == linux_abi::kSetupHeaderEnd);
  boot_params page{};
  setup_header& header = page.hdr;
  if (kernel.is_bzimage()) {
    // By bytes of the page: a newer kernel's header may be longer than this build's struct.
    const std::span<std::byte> room =
        std::as_writable_bytes(std::span(&page, 1))
            .subspan(linux_abi::kSetupHeader, linux_abi::kSetupHeaderEnd - linux_abi::kSetupHeader);
    std::ranges::copy(std::span(kernel.setup_header).first(std::min(kernel.setup_header.size(), room.size())),
                      room.begin());
  } else {
    header.boot_flag = linux_abi::kBootFlagValue;
    header.header = linux_abi::kHeaderMagicValue;
    header.version = kElfVersion;
    header.loadflags = LOADED_HIGH;
  }
  header.type_of_loader = kLoaderUnregistered;
  header.ext_loader_type = 0;
  header.ext_loader_ver = 0;
  header.vid_mode = kVideoModeNormal;
  // No real-mode code runs, so there is no heap; what the image has in these fields is for another loader.
  header.loadflags = static_cast<std::uint8_t>(header.loadflags & ~(CAN_USE_HEAP | KEEP_SEGMENTS));
  header.heap_end_ptr = 0;
  header.setup_data = 0;
  header.cmd_line_ptr = low(info.command_line_address);
  page.ext_cmd_line_ptr = high(info.command_line_address);
  if (info.initrd) {
    header.ramdisk_image = low(info.initrd->address);
    header.ramdisk_size = low(info.initrd->bytes);
    page.ext_ramdisk_image = high(info.initrd->address);
    page.ext_ramdisk_size = high(info.initrd->bytes);
  } else {
    header.ramdisk_image = 0;
    header.ramdisk_size = 0;
  }
  page.acpi_rsdp_addr = info.rsdp_address;

  if (info.memory_map.size() > E820_MAX_ENTRIES_ZEROPAGE) {
    throw base::BadInput(fmt::format("the memory map has {} entries; the zero page holds {}", info.memory_map.size(),
                                     E820_MAX_ENTRIES_ZEROPAGE));
  }
  page.e820_entries = static_cast<std::uint8_t>(info.memory_map.size());
  for (std::size_t i = 0; i < info.memory_map.size(); ++i) {
    const E820Entry& entry = info.memory_map[i];
    page.e820_table[i] = {entry.address, entry.bytes, static_cast<std::uint32_t>(entry.type)};
  }
  return page;
}

}  // namespace vmm::boot
