// SPDX-License-Identifier: Apache-2.0
// The input is a whole statistics file (KVM API 4.133). Whatever it holds, reading it ends and every value has a number
// or a reason; a second snapshot can be subtracted.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "stats/kvm_stats.hpp"
#include "stats/vcpu_snapshot.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace vmm::stats;
  const std::span<const std::uint8_t> file(data, size);
  const ReadAt read_at = [file](std::uint64_t offset, std::span<std::byte> into) -> std::int64_t {
    if (offset >= file.size()) return 0;
    const std::size_t count = std::min(into.size(), file.size() - static_cast<std::size_t>(offset));
    std::memcpy(into.data(), file.data() + offset, count);
    return static_cast<std::int64_t>(count);
  };
  const StatsLayout layout = parse_stats_layout(read_at);
  VcpuSnapshot first;
  merge_kvm_stats(first, read_stats(layout, read_at));
  VcpuSnapshot second;
  merge_kvm_stats(second, read_stats(layout, read_at));
  const VcpuSnapshot interval = difference(first, second);
  for (const auto& [name, value] : interval.counters) {
    if (value.known() != value.reason().empty()) std::abort();
    if (value.known() && !interval.levels.contains(name) && value.integer() != std::uint64_t{0}) std::abort();
  }
  for (const auto& [name, histogram] : interval.histograms) {
    if (histogram.known() == histogram.counts.empty()) std::abort();
  }
  if (to_json(interval).dump().empty()) std::abort();
  return 0;
}
