// SPDX-License-Identifier: Apache-2.0
// Any bytes as a kernel or payload file: refused with BadInput, or a plan all of whose parts lie in RAM, apart from
// each other, with every file range within the file. Build: clang++ -fsanitize=fuzzer,address,undefined.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "boot/plan.hpp"
#include "memory/guest_memory.hpp"
#include "memory/layout.hpp"

namespace {

using namespace vmm;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_plan(const boot::BootPlan& plan, std::span<const memory::Region> ram, std::uint64_t file_bytes,
                std::uint64_t initrd_bytes) {
  struct Extent {
    std::uint64_t address;
    std::uint64_t bytes;
  };
  std::vector<Extent> extents;
  for (const boot::FileSegment& segment : plan.segments) {
    const std::uint64_t limit = segment.file == boot::PlanFile::kKernel ? file_bytes : initrd_bytes;
    require(segment.file_offset <= limit && segment.bytes <= limit - segment.file_offset);
    extents.push_back({segment.address, segment.bytes});
  }
  for (const boot::Blob& blob : plan.blobs) extents.push_back({blob.address, blob.bytes.size()});
  std::ranges::sort(extents, {}, &Extent::address);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    require(memory::inside(ram, extents[i].address, extents[i].bytes));
    if (i > 0) require(extents[i].address - extents[i - 1].address >= extents[i - 1].bytes);
  }
  require(!plan.registers.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  try {
    const boot::KernelImage image = boot::inspect_kernel(boot::ByteSource::of_bytes(file), "fuzz");
    for (const std::uint64_t memory_bytes :
         {64 * memory::layout::kMiB, 256 * memory::layout::kMiB, 5 * memory::layout::kGiB}) {
      const std::vector<memory::Region> ram = memory::ram_regions(memory_bytes);
      constexpr std::uint64_t kInitrdBytes = 12345678;
      try {
        check_plan(boot::plan_linux_boot(image, kInitrdBytes, "console=ttyS0", ram, 2), ram, size, kInitrdBytes);
      } catch (const base::BadInput&) {
      }
      try {
        check_plan(boot::plan_payload(image, "rounds=1", ram, 64, 0), ram, size, 0);
      } catch (const base::BadInput&) {
      }
    }
  } catch (const base::BadInput&) {
  }
  return 0;
}
