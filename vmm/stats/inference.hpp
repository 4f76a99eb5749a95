// SPDX-License-Identifier: Apache-2.0
// What a few trials allow to be said: medians with intervals, and verdicts. Pure.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace vmm::stats {

struct Interval {
  double low = 0;
  double high = 0;
  bool operator==(const Interval&) const = default;
};

// The middle value, or the mean of the two middle ones. `values` must not be empty.
double median(std::vector<double> values);

// The fewest values for which a 95 % interval of the median exists: with five the whole range covers it with 93.75 %.
inline constexpr std::size_t kIntervalMinimum = 6;

// A 95 % confidence interval of the median of what `values` were drawn from, whatever its distribution: between order
// statistics, whose coverage is binomial, interpolated (Hettmansperger and Sheather, Statistics & Probability Letters
// 4, 1986). Nothing for fewer than kIntervalMinimum values. A percentile bootstrap of the median, which it replaces,
// covers 91 to 94 % at 8 values (tests/unit/stats/inference_test.cpp measures both).
std::optional<Interval> median_interval(std::vector<double> values);

// A ratio of two arms, one value of each a block, paired by block.
struct Ratio {
  double median = 0;                 // exp of the median of log(arm / baseline)
  std::optional<Interval> interval;  // the same of its interval
  std::size_t blocks = 0;
};
// Both of the same length, all values above 0; nothing when there is no block.
std::optional<Ratio> paired_ratio(const std::vector<double>& arm, const std::vector<double>& baseline);

// The ratio of two independent samples, all values above 0: exp of the Hodges-Lehmann shift of their logarithms, with
// the exact 95 % interval of the Mann-Whitney distribution (normal approximation above 30 values). `blocks` is the
// smaller sample's size; no interval for samples too small to have one (4 and 4 have). Nothing when one is empty.
std::optional<Ratio> unpaired_ratio(const std::vector<double>& sample, const std::vector<double>& baseline);

// Of a quantity of which less is better.
enum class Verdict {
  kBetter,        // the interval lies below 1
  kWorse,         // above 1
  kEquivalent,    // it contains 1 and lies within kEquivalence
  kInconclusive,  // all else, no interval included
};
inline constexpr Interval kEquivalence{0.95, 1.05};
Verdict judge(const std::optional<Interval>& ratio) noexcept;
std::string_view name_of(Verdict verdict) noexcept;

}  // namespace vmm::stats
