// SPDX-License-Identifier: Apache-2.0
#include "boot/plan.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/parse.hpp"
#include "boot/acpi.hpp"
#include "boot/command_line.hpp"
#include "boot/e820.hpp"
#include "boot/gdt.hpp"
#include "boot/initrd.hpp"
#include "boot/page_tables.hpp"
#include "boot/payload_info.hpp"
#include "boot/pvh.hpp"
#include "boot/zero_page.hpp"
#include "memory/layout.hpp"

namespace vmm::boot {
namespace {

namespace layout = memory::layout;

// A range of guest memory that is spoken for.
struct Extent {
  std::uint64_t address;
  std::uint64_t bytes;
  std::string name;
};

template <typename T>
std::vector<std::byte> bytes_of(const T& object) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&object, 1));
  return {bytes.begin(), bytes.end()};
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& objects) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(objects));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> bytes_of_text(std::string_view text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  std::vector<std::byte> result(bytes.begin(), bytes.end());
  result.push_back(std::byte{0});
  return result;
}

void check_vcpus(unsigned vcpus) {
  if (vcpus == 0 || vcpus > layout::kVcpusMaximum) {
    throw base::BadInput(fmt::format("--cpus: {} is not in 1 to {}", vcpus, layout::kVcpusMaximum));
  }
}

std::uint64_t total_bytes(std::span<const memory::Region> ram) {
  std::uint64_t total = 0;
  for (const memory::Region& region : ram) total += region.bytes;
  return total;
}

// The end of the RAM below the hole.
std::uint64_t low_ram_end(std::span<const memory::Region> ram) {
  for (const memory::Region& region : ram) {
    if (region.address == 0) return region.bytes;
  }
  return 0;
}

// What would make room for a segment that no RAM has: more memory, or nothing.
std::string remedy(const ImageSegment& segment) {
  const std::uint64_t end = segment.address + segment.memory_bytes;
  constexpr std::uint64_t kStep = 64 * layout::kMiB;
  if (segment.address < layout::kHighMemory) {
    return fmt::format("a kernel linked at {:#x} or above would work", layout::kHighMemory);
  }
  if (end <= layout::kHoleStart) {
    return fmt::format("--memory={} would work", base::format_size_bytes((end + kStep - 1) / kStep * kStep));
  }
  return fmt::format("a kernel linked below {:#x} would work", layout::kHoleStart);
}

// A plan under construction, and all memory it has spoken for.
class Builder {
 public:
  Builder(std::vector<E820Entry> map, std::span<const memory::Region> ram) : map_(std::move(map)), ram_(ram) {}

  void add(std::uint64_t address, std::vector<std::byte> bytes, const char* name) {
    extents_.push_back({address, bytes.size(), name});
    plan_.blobs.push_back({address, std::move(bytes), name});
  }
  void add(std::vector<Blob> blobs) {
    for (Blob& blob : blobs) add(blob.address, std::move(blob.bytes), blob.name);
  }
  void add_kernel(const KernelImage& kernel) {
    for (const ImageSegment& segment : kernel.segments) {
      if (!usable(map_, segment.address, segment.memory_bytes)) {
        throw base::BadInput(fmt::format(
            "{}: '{}' needs {:#x} bytes of memory at {:#x}, which are not in the guest's RAM ({}, low part to {:#x}); "
            "{}",
            kernel.option, kernel.name, segment.memory_bytes, segment.address,
            base::format_size_bytes(total_bytes(ram_)), low_ram_end(ram_), remedy(segment)));
      }
      extents_.push_back({segment.address, segment.memory_bytes, fmt::format("{} '{}'", kernel.option, kernel.name)});
      if (segment.file_bytes == 0) continue;
      plan_.segments.push_back({PlanFile::kKernel, segment.file_offset, segment.file_bytes, segment.address});
    }
  }
  void add_initrd(const InitrdPlace& place) {
    extents_.push_back({place.address, place.bytes, "--initrd"});
    plan_.segments.push_back({PlanFile::kInitrd, 0, place.bytes, place.address});
  }
  void reserve(std::uint64_t address, std::uint64_t bytes, std::string name) {
    extents_.push_back({address, bytes, std::move(name)});
  }
  void add_registers(const RegisterState& state) { plan_.registers.push_back(state); }

  // The last check of everything together.
  BootPlan finish() {
    std::ranges::sort(extents_, {}, &Extent::address);
    for (std::size_t i = 0; i < extents_.size(); ++i) {
      const Extent& extent = extents_[i];
      if (!memory::inside(ram_, extent.address, extent.bytes)) {
        throw base::BadInput(
            fmt::format("--memory: {} bytes at {:#x} for {} are not in the guest's RAM ({}); more "
                        "memory would work",
                        extent.bytes, extent.address, extent.name, base::format_size_bytes(total_bytes(ram_))));
      }
      if (i == 0) continue;
      const Extent& before = extents_[i - 1];
      if (extent.address - before.address < before.bytes) {
        throw base::BadInput(fmt::format(
            "{} ({:#x} bytes at {:#x}) and {} ({:#x} bytes at {:#x}) overlap in the "
            "guest's memory; a kernel linked at {:#x} or above, or more --memory, would "
            "work",
            before.name, before.bytes, before.address, extent.name, extent.bytes, extent.address, layout::kHighMemory));
      }
    }
    return std::move(plan_);
  }

 private:
  std::vector<E820Entry> map_;
  std::span<const memory::Region> ram_;
  std::vector<Extent> extents_;
  BootPlan plan_;
};

void add_long_mode_tables(Builder& builder, const Gdt& gdt) {
  builder.add(layout::kGdt, gdt.bytes(), "the GDT");
  builder.add(layout::kPml4, identity_page_tables(), "the page tables");
}

}  // namespace

BootPlan plan_linux_boot(const KernelImage& kernel, std::optional<std::uint64_t> initrd_bytes,
                         std::string_view command_line, std::span<const memory::Region> ram, unsigned vcpus) {
  check_vcpus(vcpus);
  const std::vector<E820Entry> map = e820_map(ram);
  Builder builder(map, ram);
  builder.add_kernel(kernel);

  CommandLine words;
  words.add(command_line);
  const bool area_is_smaller = layout::kCommandLineBytes - 1 < kernel.command_line_capacity;
  const std::string& text = words.within(std::min(layout::kCommandLineBytes - 1, kernel.command_line_capacity),
                                         area_is_smaller ? "the VMM" : "the kernel");
  builder.add(layout::kCommandLine, bytes_of_text(text), "the command line");

  BootInfo info;
  info.command_line_address = layout::kCommandLine;
  info.rsdp_address = layout::kAcpiTables;
  info.memory_map = map;
  if (initrd_bytes) {
    info.initrd = place_initrd(*initrd_bytes, kernel, map);
    builder.add_initrd(*info.initrd);
  }
  builder.add(acpi_tables(vcpus));

  if (kernel.protocol == BootProtocol::kPvh) {
    const PvhBoot pvh = make_pvh_boot(info);
    builder.add(layout::kPvhStartInfo, bytes_of(pvh.start_info), "the PVH start info");
    if (!pvh.modules.empty()) builder.add(layout::kPvhModules, bytes_of(pvh.modules), "the PVH modules");
    builder.add(layout::kPvhMemoryMap, bytes_of(pvh.memory_map), "the PVH memory map");
    builder.add(layout::kGdt, Gdt::pvh().bytes(), "the GDT");
    builder.add_registers(pvh_registers(static_cast<std::uint32_t>(kernel.entry), layout::kPvhStartInfo));
  } else {
    builder.add(layout::kZeroPage, bytes_of(make_zero_page(kernel, info)), "the zero page");
    add_long_mode_tables(builder, Gdt::linux64());
    builder.add_registers(linux64_registers(kernel.entry, layout::kZeroPage));
  }
  return builder.finish();
}

BootPlan plan_payload(const KernelImage& payload, std::string_view arguments, std::span<const memory::Region> ram,
                      unsigned vcpus, std::uint64_t tsc_khz) {
  check_vcpus(vcpus);
  if (payload.is_bzimage()) {
    throw base::BadInput(fmt::format("{}: '{}' is a Linux bzImage, a payload is an ELF64 executable; --kernel boots it",
                                     payload.option, payload.name));
  }
  Builder builder(e820_map(ram), ram);
  builder.add_kernel(payload);
  // A PVH note does not matter here, e_entry does: it was checked only if there is no note.
  const bool entry_is_loaded = std::ranges::any_of(payload.segments, [&](const ImageSegment& segment) {
    return payload.elf_entry >= segment.address && payload.elf_entry - segment.address < segment.file_bytes;
  });
  if (!entry_is_loaded || payload.elf_entry >= 4 * layout::kGiB) {
    throw base::BadInput(
        fmt::format("{}: '{}' has its entry point at {:#x}, which is not in a loaded segment below "
                    "4 GiB; link it at equal virtual and physical addresses",
                    payload.option, payload.name, payload.elf_entry));
  }

  constexpr std::uint64_t kArgumentsCapacity = layout::kPayloadInfo + layout::kPageBytes - layout::kPayloadArgs - 1;
  CommandLine words(payload.option);
  words.add(arguments);
  const std::string& text = words.within(kArgumentsCapacity, "a payload");
  PayloadInfo info{};
  info.magic = kPayloadMagic;
  info.vcpus = vcpus;
  info.memory_bytes = total_bytes(ram);
  info.tsc_khz = tsc_khz;
  info.args_address = layout::kPayloadArgs;
  info.args_bytes = text.size();
  builder.add(layout::kPayloadInfo, bytes_of(info), "the payload's information");
  builder.add(layout::kPayloadArgs, bytes_of_text(text), "the payload's arguments");
  add_long_mode_tables(builder, Gdt::payload());

  const std::uint64_t stacks_end = low_ram_end(ram);
  const std::uint64_t stacks_bytes = vcpus * layout::kPayloadStackBytes;
  if (stacks_end < layout::kHighMemory + stacks_bytes) {
    throw base::BadInput(fmt::format("--memory: {} have no room for {} stacks of {} bytes; 64M would work",
                                     base::format_size_bytes(total_bytes(ram)), vcpus, layout::kPayloadStackBytes));
  }
  builder.reserve(stacks_end - stacks_bytes, stacks_bytes, "the payload's stacks");
  for (unsigned vcpu = 0; vcpu < vcpus; ++vcpu) {
    builder.add_registers(payload_registers(payload.elf_entry, vcpu, layout::kPayloadInfo,
                                            stacks_end - vcpu * layout::kPayloadStackBytes));
  }
  return builder.finish();
}

}  // namespace vmm::boot
