// SPDX-License-Identifier: Apache-2.0
// Latencies of single operations, reduced to percentiles that the data can carry.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
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

// The end (exclusive) of a value's bucket: eight buckets an octave, so a bucket is at most an eighth of its value wide.
inline std::uint64_t bucket_end(std::uint64_t value) {
  if (value < 8) return value + 1;
  const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - 4;
  return ((value >> shift) + 1) << shift;
}

// [[end_ns,count],…] of the buckets that hold something, ascending.
inline std::string buckets_json(const std::vector<std::uint64_t>& sorted) {
  std::string json = "[";
  for (std::size_t i = 0; i < sorted.size();) {
    const std::uint64_t end = bucket_end(sorted[i]);
    const auto next = static_cast<std::size_t>(std::distance(
        sorted.begin(), std::lower_bound(sorted.begin() + static_cast<std::ptrdiff_t>(i), sorted.end(), end)));
    json += (i == 0 ? "[" : ",[") + std::to_string(end) + "," + std::to_string(next - i) + "]";
    i = next;
  }
  return json + "]";
}

// {"count":…,"min":…,"p50":…,"p90":…,"p99":…,"p999":…,"max":…} in microseconds with three decimals; null for what
// cannot be said. "buckets_below_ns" is the distribution.
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
  json.raw("buckets_below_ns", buckets_json(samples_ns));
  return json.object();
}

}  // namespace guest
