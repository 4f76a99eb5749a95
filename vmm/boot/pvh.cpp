// SPDX-License-Identifier: Apache-2.0
#include "boot/pvh.hpp"

#include "memory/layout.hpp"

namespace vmm::boot {

namespace layout = memory::layout;

static_assert(layout::kPvhStartInfo + sizeof(pvh::StartInfo) <= layout::kPvhModules);
static_assert(layout::kPvhModules + sizeof(pvh::Module) <= layout::kPvhMemoryMap);

PvhBoot make_pvh_boot(const BootInfo& info) {
  PvhBoot boot{};
  if (info.initrd) boot.modules.push_back({info.initrd->address, info.initrd->bytes, 0, 0});
  for (const E820Entry& entry : info.memory_map) {
    boot.memory_map.push_back({entry.address, entry.bytes, static_cast<std::uint32_t>(entry.type), 0});
  }
  boot.start_info.magic = pvh::kStartMagic;
  boot.start_info.version = pvh::kStartInfoVersion;
  boot.start_info.modules = static_cast<std::uint32_t>(boot.modules.size());
  boot.start_info.modules_address = boot.modules.empty() ? 0 : layout::kPvhModules;
  boot.start_info.command_line_address = info.command_line_address;
  boot.start_info.rsdp_address = info.rsdp_address;
  boot.start_info.memory_map_address = layout::kPvhMemoryMap;
  boot.start_info.memory_map_entries = static_cast<std::uint32_t>(boot.memory_map.size());
  return boot;
}

}  // namespace vmm::boot
