// SPDX-License-Identifier: Apache-2.0
#include "stats/inference.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace vmm::stats {
namespace {

// Half a point above 95 %: the linear interpolation between two order statistics falls short of its nominal coverage by
// up to that much (measured for 8 to 30 values in inference_test.cpp).
constexpr double kNominal = 0.955;

// The probability that the k-th smallest and the k-th largest of n values enclose the median: 1 - 2 P(Bin(n, 1/2) < k).
double coverage(std::size_t n, std::size_t k) {
  double term = std::exp2(-static_cast<double>(n));
  double below = 0;
  for (std::size_t i = 0; i < k; ++i) {
    below += term;
    term *= static_cast<double>(n - i) / static_cast<double>(i + 1);
  }
  return 1 - 2 * below;
}

constexpr std::size_t kExactMaximum = 30;
constexpr double kTail = 0.025;
constexpr double kNormalQuantile = 1.959963984540054;

// How many of the n m ordered shifts to leave out at each end: the largest c with P(U < c) <= 2.5 %, U the Mann-Whitney
// statistic of n and m values; 0 when there is none.
std::size_t mann_whitney_cut(std::size_t n, std::size_t m) {
  const std::size_t pairs = n * m;
  if (std::max(n, m) > kExactMaximum) {
    const auto product = static_cast<double>(pairs);
    const double deviation = std::sqrt(product * static_cast<double>(n + m + 1) / 12);
    return static_cast<std::size_t>(std::max(0.0, std::floor(product / 2 - kNormalQuantile * deviation)));
  }
  // ways[j][u]: arrangements of i and j values with U = u; those whose largest value is of the second sample have the
  // same U with one of them less, the others gain j.
  std::vector<std::vector<double>> ways(m + 1, std::vector<double>(pairs + 1, 0));
  for (std::size_t j = 0; j <= m; ++j) ways[j][0] = 1;
  for (std::size_t i = 1; i <= n; ++i) {
    std::vector<std::vector<double>> next(m + 1, std::vector<double>(pairs + 1, 0));
    next[0][0] = 1;
    for (std::size_t j = 1; j <= m; ++j) {
      for (std::size_t u = 0; u <= i * j; ++u) next[j][u] = next[j - 1][u] + (u >= j ? ways[j][u - j] : 0);
    }
    ways = std::move(next);
  }
  double all = 0;
  for (const double count : ways[m]) all += count;
  double below = 0;
  std::size_t cut = 0;
  while (cut < pairs && (below += ways[m][cut]) / all <= kTail) ++cut;
  return cut;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) throw std::invalid_argument("median of nothing");
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::optional<Interval> median_interval(std::vector<double> values) {
  const std::size_t n = values.size();
  if (n < kIntervalMinimum) return std::nullopt;
  std::ranges::sort(values);
  std::size_t k = 1;
  while (2 * (k + 1) <= n && coverage(n, k + 1) >= kNominal) ++k;
  // Between the k-th and the next order statistic, by the weight of the paper's equation for interpolation.
  const double wide = coverage(n, k);
  const double narrow = 2 * (k + 1) <= n ? coverage(n, k + 1) : 0;
  const double share = (wide - kNominal) / (wide - narrow);
  const auto outer = static_cast<double>(n - k);
  const auto rank = static_cast<double>(k);
  const double weight = outer * share / (rank + (static_cast<double>(n) - 2 * rank) * share);
  const double step = std::clamp(weight, 0.0, 1.0);
  return Interval{values[k - 1] + step * (values[k] - values[k - 1]),
                  values[n - k] - step * (values[n - k] - values[n - k - 1])};
}

std::optional<Ratio> paired_ratio(const std::vector<double>& arm, const std::vector<double>& baseline) {
  if (arm.size() != baseline.size()) throw std::invalid_argument("paired_ratio of unpaired values");
  if (arm.empty()) return std::nullopt;
  std::vector<double> logs;
  for (std::size_t i = 0; i < arm.size(); ++i) {
    if (!(arm[i] > 0) || !(baseline[i] > 0)) throw std::invalid_argument("paired_ratio of a value that is not above 0");
    logs.push_back(std::log(arm[i] / baseline[i]));
  }
  Ratio ratio{std::exp(median(logs)), std::nullopt, logs.size()};
  if (const auto interval = median_interval(logs)) {
    ratio.interval = Interval{std::exp(interval->low), std::exp(interval->high)};
  }
  return ratio;
}

std::optional<Ratio> unpaired_ratio(const std::vector<double>& sample, const std::vector<double>& baseline) {
  if (sample.empty() || baseline.empty()) return std::nullopt;
  std::vector<double> shifts;
  for (const double value : sample) {
    for (const double reference : baseline) {
      if (!(value > 0) || !(reference > 0)) {
        throw std::invalid_argument("unpaired_ratio of a value that is not above 0");
      }
      shifts.push_back(std::log(value / reference));
    }
  }
  std::ranges::sort(shifts);
  Ratio ratio{std::exp(median(shifts)), std::nullopt, std::min(sample.size(), baseline.size())};
  if (const std::size_t cut = mann_whitney_cut(sample.size(), baseline.size()); cut > 0) {
    ratio.interval = Interval{std::exp(shifts[cut - 1]), std::exp(shifts[shifts.size() - cut])};
  }
  return ratio;
}

Verdict judge(const std::optional<Interval>& ratio) noexcept {
  if (!ratio) return Verdict::kInconclusive;
  if (ratio->high < 1) return Verdict::kBetter;
  if (ratio->low > 1) return Verdict::kWorse;
  if (ratio->low >= kEquivalence.low && ratio->high <= kEquivalence.high) return Verdict::kEquivalent;
  return Verdict::kInconclusive;
}

std::string_view name_of(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kBetter:
      return "better";
    case Verdict::kWorse:
      return "worse";
    case Verdict::kEquivalent:
      return "equivalent";
    case Verdict::kInconclusive:
      break;
  }
  return "inconclusive";
}

}  // namespace vmm::stats
