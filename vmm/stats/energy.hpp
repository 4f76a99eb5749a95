// SPDX-License-Identifier: Apache-2.0
// Energy of the host's packages: RAPL, by the kernel's powercap class (Documentation/power/powercap/powercap.rst).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "stats/value.hpp"

namespace vmm::stats {

inline constexpr const char* kPowercapDirectory = "/sys/class/powercap";

// The packages' counters, uJ since some moment. Each wraps at its range.
struct EnergyReading {
  struct Package {
    std::uint64_t energy_uj;
    std::uint64_t range_uj;  // 0 to here
    bool operator==(const Package&) const = default;
  };
  std::map<std::string, Package> packages;  // by zone: "intel-rapl:0"
  std::string reason;                       // why there are none
};

// Reads every package below `directory` (AMD's too have Intel's name there). Without root the counters cannot be read:
// then, as where there are none, the reason says so. Never throws.
EnergyReading read_energy(const std::filesystem::path& directory = kPowercapDirectory);

// The energy of all packages between two readings, uJ; a counter that wrapped once is seen. Null with the reason.
Value energy_between(const EnergyReading& before, const EnergyReading& after);

}  // namespace vmm::stats
