// SPDX-License-Identifier: Apache-2.0
#include "stats/energy.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/file.hpp"

namespace vmm::stats {
namespace {

constexpr std::string_view kZonePrefix = "intel-rapl:";

std::string line_of(const std::filesystem::path& file) {
  std::string text = base::read_text(file);
  text.erase(std::min(text.find('\n'), text.size()));
  return text;
}

std::uint64_t number_of(const std::filesystem::path& file) {
  const std::string text = line_of(file);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw base::HostUnable(fmt::format("'{}' holds no number", file.string()));
  }
  return number;
}

}  // namespace

EnergyReading read_energy(const std::filesystem::path& directory) {
  EnergyReading reading;
  try {
    std::error_code error;
    for (const auto& zone : std::filesystem::directory_iterator(directory, error)) {
      const std::string name = zone.path().filename().string();
      if (!name.starts_with(kZonePrefix)) continue;
      // Others are parts of a package ("core", "dram") or hold it ("psys").
      if (!line_of(zone.path() / "name").starts_with("package")) continue;
      reading.packages[name] = {number_of(zone.path() / "energy_uj"), number_of(zone.path() / "max_energy_range_uj")};
    }
    if (reading.packages.empty()) reading.reason = "this host has no RAPL packages in " + directory.string();
  } catch (const std::exception& failure) {
    reading.packages.clear();
    reading.reason = failure.what();
  }
  return reading;
}

Value energy_between(const EnergyReading& before, const EnergyReading& after) {
  const auto null = [](std::string reason) {
    return Value::null(Unit::kMicrojoules, Source::kPowercap, std::move(reason));
  };
  for (const EnergyReading* reading : {&before, &after}) {
    if (reading->packages.empty()) return null(reading->reason);
  }
  std::uint64_t sum_uj = 0;
  if (before.packages.size() != after.packages.size()) return null("a package came or went");
  for (const auto& [zone, end] : after.packages) {
    const auto begin = before.packages.find(zone);
    if (begin == before.packages.end() || begin->second.range_uj != end.range_uj) return null("a package came or went");
    const std::uint64_t begin_uj = begin->second.energy_uj;
    if (begin_uj > end.range_uj || end.energy_uj > end.range_uj) return null("a counter lies beyond its own range");
    sum_uj += end.energy_uj >= begin_uj ? end.energy_uj - begin_uj : end.range_uj - begin_uj + 1 + end.energy_uj;
  }
  return Value::number(sum_uj, Unit::kMicrojoules, Source::kPowercap);
}

}  // namespace vmm::stats
