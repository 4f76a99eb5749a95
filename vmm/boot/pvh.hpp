// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "boot/zero_page.hpp"

namespace vmm::boot {

// PVH's structures, version 1: Xen's public/arch-x86/hvm/start_info.h, for which Debian has no header.
namespace pvh {

inline constexpr std::uint32_t kStartMagic = 0x336ec578;
inline constexpr std::uint32_t kStartInfoVersion = 1;  // the first with a memory map

struct StartInfo {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t flags;
  std::uint32_t modules;
  std::uint64_t modules_address;
  std::uint64_t command_line_address;
  std::uint64_t rsdp_address;
  std::uint64_t memory_map_address;
  std::uint32_t memory_map_entries;
  std::uint32_t reserved;
};
static_assert(sizeof(StartInfo) == 56);

struct Module {
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint64_t command_line_address;
  std::uint64_t reserved;
};
static_assert(sizeof(Module) == 32);

struct MemoryMapEntry {
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint32_t type;
  std::uint32_t reserved;
};
static_assert(sizeof(MemoryMapEntry) == 24);

}  // namespace pvh

// The three parts, for layout::kPvhStartInfo, kPvhModules and kPvhMemoryMap. The initrd is the first module; without
// one `modules` is empty.
struct PvhBoot {
  pvh::StartInfo start_info;
  std::vector<pvh::Module> modules;
  std::vector<pvh::MemoryMapEntry> memory_map;
};
PvhBoot make_pvh_boot(const BootInfo& info);

}  // namespace vmm::boot
