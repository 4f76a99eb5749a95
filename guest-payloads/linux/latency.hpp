// SPDX-License-Identifier: Apache-2.0
// Latencies of single operations, reduced to percentiles that the data can carry.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json_writer.hpp"

namespace guest {

// A percentile with fewer samples than this beyond it is noise, and is not given.
inline constexpr std::size_t kSamplesBeyond = 10;

// Nearest-rank percentile of sorted values: the smallest one that at least per_mille/1000 of all do not exceed.
// Nothing where fewer than kSamplesBeyond values come after it.
inline std::optional<std::uint64_t> percentile(const std::vector<std::uint64_t>& sorted, unsigned per_mille) {
  const std::size_t rank = (sorted.size() * per_mille + 999) / 1000;  // from 1
  if (rank == 0 || sorted.size() - rank < kSamplesBeyond) return std::nullopt;
  return sorted[rank - 1];
}

// {"count":…,"min":…,"p50":…,"p90":…,"p99":…,"p999":…,"max":…} in microseconds with three decimals; null for what
// cannot be said.
inline std::string latency_json(std::vector<std::uint64_t> samples_ns) {
  std::sort(samples_ns.begin(), samples_ns.end());
  JsonWriter json;
  const auto us = [&json](const char* name, std::optional<std::uint64_t> ns) {
    if (ns) {
      json.field_thousandths(name, *ns);
    } else {
      json.field_null(name);
    }
  };
  json.field("count", std::uint64_t{samples_ns.size()});
  us("min", samples_ns.empty() ? std::nullopt : std::optional(samples_ns.front()));
  us("p50", percentile(samples_ns, 500));
  us("p90", percentile(samples_ns, 900));
  us("p99", percentile(samples_ns, 990));
  us("p999", percentile(samples_ns, 999));
  us("max", samples_ns.empty() ? std::nullopt : std::optional(samples_ns.back()));
  return json.object();
}

}  // namespace guest
