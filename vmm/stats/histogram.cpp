// SPDX-License-Identifier: Apache-2.0
#include "stats/histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace vmm::stats {
namespace {

// Below this many samples beyond a quantile, the quantile says more about luck than about the system.
constexpr double kMinimumBeyond = 10;

}  // namespace

Histogram Histogram::null(Unit unit, Source source, std::string reason) {
  Histogram histogram;
  histogram.unit = unit;
  histogram.source = source;
  histogram.reason = reason.empty() ? "unknown" : std::move(reason);
  return histogram;
}

std::size_t log2_bucket(std::uint64_t sample, std::size_t buckets) noexcept {
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(sample)), buckets - 1);
}

void Histogram::add_log2(std::uint64_t sample) {
  ++counts[log2_bucket(sample, counts.size())];
}

Value Histogram::total() const {
  if (!known()) return Value::null(Unit::kCount, source, reason);
  Value total = Value::count(0, source);
  for (const std::uint64_t count : counts) total = sum(total, Value::count(count, source));
  return total;
}

Value Histogram::upper_bound(std::size_t index) const {
  if (!known()) return Value::null(unit, source, reason);
  if (index + 1 >= counts.size()) return Value::null(unit, source, "the last bucket is open");
  if (scale == Scale::kLog2) {
    if (index >= 64) return Value::null(unit, source, "beyond 64 bits");
    return Value::number(std::uint64_t{1} << index, unit, source);
  }
  const std::uint64_t buckets = index + 1;
  if (bucket_size != 0 && buckets > std::numeric_limits<std::uint64_t>::max() / bucket_size) {
    return Value::null(unit, source, "beyond 64 bits");
  }
  return Value::number(buckets * bucket_size, unit, source);
}

Value Histogram::quantile_upper_bound(double quantile) const {
  const auto all = total();
  if (!all.known()) return Value::null(unit, source, all.reason());
  if (!(quantile > 0 && quantile < 1)) return Value::null(unit, source, "quantile is not between 0 and 1");
  const double samples = *all.real();
  // The tolerance keeps 1 - 0.9 (a little below 0.1 in binary) from costing the tenth sample of a hundred.
  if (samples * (1 - quantile) < kMinimumBeyond - 1e-6) {
    return Value::null(unit, source, "fewer than 10 samples beyond it");
  }
  const double rank = std::ceil(samples * quantile - 1e-6);
  double cumulative = 0;
  for (std::size_t index = 0; index < counts.size(); ++index) {
    cumulative += static_cast<double>(counts[index]);
    if (cumulative >= rank) return upper_bound(index);
  }
  return Value::null(unit, source, "the last bucket is open");
}

Histogram difference(const Histogram& before, const Histogram& after) {
  const auto fail = [&](std::string reason) { return Histogram::null(after.unit, after.source, std::move(reason)); };
  if (!after.known()) return fail(after.reason);
  if (!before.known()) return fail(before.reason);
  if (before.unit != after.unit) return fail("units differ");
  if (before.scale != after.scale || before.bucket_size != after.bucket_size ||
      before.counts.size() != after.counts.size()) {
    return fail("buckets differ");
  }
  Histogram result = after;
  for (std::size_t index = 0; index < result.counts.size(); ++index) {
    if (after.counts[index] < before.counts[index]) return fail("went backwards");
    result.counts[index] = after.counts[index] - before.counts[index];
  }
  return result;
}

nlohmann::ordered_json to_json(const Histogram& histogram) {
  nlohmann::ordered_json json;
  json["scale"] = histogram.scale == Histogram::Scale::kLog2 ? "log2" : "linear";
  json["unit"] = name_of(histogram.unit);
  json["source"] = name_of(histogram.source);
  if (!histogram.known()) {
    json["counts"] = nullptr;
    json["reason"] = histogram.reason;
    return json;
  }
  if (histogram.scale == Histogram::Scale::kLinear) json["bucket_size"] = histogram.bucket_size;
  json["counts"] = histogram.counts;
  for (const auto& [name, quantile] : {std::pair{"p50_below", 0.5}, {"p90_below", 0.9}, {"p99_below", 0.99}}) {
    const auto bound = histogram.quantile_upper_bound(quantile).integer();
    json[name] = bound ? nlohmann::ordered_json(*bound) : nlohmann::ordered_json(nullptr);
  }
  return json;
}

}  // namespace vmm::stats
