// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "boot/blob.hpp"
#include "boot/kernel_image.hpp"
#include "boot/register_state.hpp"
#include "memory/guest_memory.hpp"

namespace vmm::boot {

enum class PlanFile { kKernel, kInitrd };

// Bytes to read from a file straight into guest RAM.
struct FileSegment {
  PlanFile file;
  std::uint64_t file_offset;
  std::uint64_t bytes;
  std::uint64_t address;  // guest-physical
  bool operator==(const FileSegment&) const = default;
};

// Everything that must be in a guest's memory and registers before its first instruction. A plain value: all ranges lie
// in RAM and none overlaps another. RAM is taken to be zero.
struct BootPlan {
  std::vector<FileSegment> segments;
  std::vector<Blob> blobs;
  std::vector<RegisterState> registers;  // by vCPU; vCPUs beyond its size wait for INIT and SIPI
};

// Linux by whatever protocol `kernel` has. `initrd_bytes`: the file's size; `ram` as from memory::ram_regions();
// `vcpus` 1 to layout::kVcpusMaximum. Throws BadInput, one line naming the option, the value, the limit and what would
// work, when kernel, initrd or command line do not fit.
BootPlan plan_linux_boot(const KernelImage& kernel, std::optional<std::uint64_t> initrd_bytes,
                         std::string_view command_line, std::span<const memory::Region> ram, unsigned vcpus);

// A bare-metal payload (payload_info.hpp): all vCPUs start at the ELF entry in 64-bit mode. `arguments`: "key=value …".
// `tsc_khz`: 0 when it is not known. Errors as above.
BootPlan plan_payload(const KernelImage& payload, std::string_view arguments, std::span<const memory::Region> ram,
                      unsigned vcpus, std::uint64_t tsc_khz);

}  // namespace vmm::boot
