// SPDX-License-Identifier: Apache-2.0
// The input is the JSON text of a mark's "guest" object, from a guest that lies. Every expected counter is set, and has
// a number or a reason; the comparison of sources and both reports cope.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "stats/run_report.hpp"
#include "stats/vcpu_snapshot.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace vmm::stats;
  const auto guest = nlohmann::json::parse(data, data + size, nullptr, false);
  if (guest.is_discarded()) return 0;
  for (const MarkSpeaker speaker : {MarkSpeaker::kAgent, MarkSpeaker::kPayload}) {
    std::vector<VcpuSnapshot> vcpus(3);
    for (unsigned id = 0; id < vcpus.size(); ++id) vcpus[id].id = id;
    merge_guest_mark(vcpus, guest, speaker);
    RunResult result;
    for (const VcpuSnapshot& vcpu : vcpus) {
      if (!vcpu.counters.contains("guest_spin_hits") || !vcpu.counters.contains("guest_timer_interrupts")) std::abort();
      for (const auto& [name, value] : vcpu.counters) {
        if (!name.starts_with("guest_") || value.known() != value.reason().empty()) std::abort();
      }
      for (const auto& agreement : compare_sources(vcpu)) result.agreements.push_back(agreement);
    }
    result.vcpus = difference(std::span<const VcpuSnapshot>(vcpus), std::span<const VcpuSnapshot>(vcpus));
    if (run_table(result).empty() || to_json(result).dump().empty()) std::abort();
  }
  return 0;
}
