// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "stats/value.hpp"

namespace vmm::stats {

// A histogram as KVM and the guest keep it. Logarithmic (KVM API 4.133, KVM_STATS_TYPE_LOG_HIST): bucket 0 holds 0,
// bucket i holds [2^(i-1), 2^i), the last bucket everything above its lower bound. Linear: bucket i holds
// [i*bucket_size, (i+1)*bucket_size), the last likewise.
struct Histogram {
  enum class Scale { kLog2, kLinear };

  Scale scale = Scale::kLog2;
  std::uint64_t bucket_size = 1;  // kLinear only
  std::vector<std::uint64_t> counts;
  Unit unit = Unit::kNanoseconds;
  Source source = Source::kKvmStats;
  std::string reason;  // not empty: unknown, counts are void

  static Histogram null(Unit unit, Source source, std::string reason);

  bool known() const noexcept { return reason.empty(); }
  // Adds one sample to a log2 histogram of at least one bucket.
  void add_log2(std::uint64_t sample);
  // Number of samples; null when unknown.
  Value total() const;
  // Exclusive upper bound of bucket `index`, in `unit`; null for the last bucket, which has none.
  Value upper_bound(std::size_t index) const;
  // An upper bound of the `quantile` (0 < quantile < 1): the true value lies in the same bucket, so in a log2 histogram
  // the bound is at most a factor of 2 above it. Null where fewer than 10 samples lie beyond the quantile, or when it
  // falls into the last bucket.
  Value quantile_upper_bound(double quantile) const;

  bool operator==(const Histogram&) const = default;
};

// Bucket of `sample` in a log2 histogram of `buckets` >= 1 buckets.
std::size_t log2_bucket(std::uint64_t sample, std::size_t buckets) noexcept;

// Bucket by bucket; null as difference(Value): a null side, another shape, or a bucket that went backwards.
Histogram difference(const Histogram& before, const Histogram& after);

// {"scale": "log2", "unit": "ns", "source": …, "counts": […], "p50_below": …, "p99_below": …}; null with "reason".
nlohmann::ordered_json to_json(const Histogram& histogram);

}  // namespace vmm::stats
