// SPDX-License-Identifier: Apache-2.0
#include "stats/inference.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <random>

namespace vmm::stats {
namespace {

// Noise as machines make it: even, skewed, with outliers, of two modes. Each with its median, found by sampling.
struct Noise {
  const char* name;
  std::function<double(std::mt19937_64&)> draw;
};

double normal(std::mt19937_64& random) {
  return std::normal_distribution<double>()(random);
}

const std::vector<Noise>& noises() {
  static const std::vector<Noise> all = {
      {"normal", [](auto& r) { return 0.08 * normal(r); }},
      {"skewed", [](auto& r) { return 0.1 * std::exp(0.7 * normal(r)); }},
      {"outliers", [](auto& r) { return 0.04 * normal(r) + (r() % 10 == 0 ? 0.4 : 0.0); }},
      {"two modes", [](auto& r) { return 0.05 * normal(r) + (r() % 3 == 0 ? 0.3 : 0.0); }}};
  return all;
}

double population_median(const Noise& noise) {
  std::mt19937_64 random(99);
  std::vector<double> sample(200'001);
  for (double& value : sample) value = noise.draw(random);
  return median(std::move(sample));
}

TEST(Median, MiddleOrMeanOfTheTwoMiddle) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_THROW((void)median({}), std::invalid_argument);
}

TEST(MedianInterval, CoversTheMedian93To97PercentWhateverTheNoise) {
  constexpr int kRuns = 20'000;
  for (const Noise& noise : noises()) {
    const double truth = population_median(noise);
    for (const std::size_t blocks : {6U, 8U, 9U, 10U, 12U, 16U, 24U}) {
      std::mt19937_64 random(blocks);
      int covered = 0;
      for (int run = 0; run < kRuns; ++run) {
        std::vector<double> values(blocks);
        for (double& value : values) value = noise.draw(random);
        const auto interval = median_interval(values);
        ASSERT_TRUE(interval);
        covered += interval->low <= truth && truth <= interval->high;
      }
      const double share = static_cast<double>(covered) / kRuns;
      EXPECT_GE(share, 0.93) << noise.name << ", " << blocks << " blocks";
      EXPECT_LE(share, 0.97) << noise.name << ", " << blocks << " blocks";
    }
  }
}

// Why not a bootstrap: the usual percentile interval of the resampled median covers too little at 8 values.
TEST(MedianInterval, APercentileBootstrapWouldCoverTooLittle) {
  constexpr int kRuns = 1'000;
  constexpr int kResamples = 400;
  const Noise& noise = noises().front();
  std::mt19937_64 random(8);
  int covered = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> values(8);
    for (double& value : values) value = noise.draw(random);
    std::vector<double> medians;
    for (int resample = 0; resample < kResamples; ++resample) {
      std::vector<double> again(8);
      for (double& value : again) value = values[random() % 8];
      medians.push_back(median(std::move(again)));
    }
    std::ranges::sort(medians);
    covered += medians[kResamples / 40] <= 0 && 0 <= medians[kResamples - 1 - kResamples / 40];
  }
  EXPECT_LT(static_cast<double>(covered) / kRuns, 0.935);
}

TEST(MedianInterval, TooFewValuesHaveNone) {
  EXPECT_FALSE(median_interval({1, 2, 3, 4, 5}));
  EXPECT_TRUE(median_interval({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(median_interval({2, 2, 2, 2, 2, 2}), (Interval{2, 2}));
}

TEST(PairedRatio, AnAAComparisonIsFlaggedAtMostOneTimeInTwenty) {
  constexpr int kRuns = 20'000;
  for (const Noise& noise : noises()) {
    std::mt19937_64 random(5);
    int flagged = 0;
    for (int run = 0; run < kRuns; ++run) {
      std::vector<double> a(8), b(8);
      for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = std::exp(noise.draw(random));
        b[i] = std::exp(noise.draw(random));
      }
      const Verdict verdict = judge(paired_ratio(a, b)->interval);
      flagged += verdict == Verdict::kBetter || verdict == Verdict::kWorse;
    }
    EXPECT_LE(static_cast<double>(flagged) / kRuns, 0.05) << noise.name;
  }
}

TEST(PairedRatio, BlocksCancelWhatBothArmsShare) {
  // The machine gets ten times slower from block to block; the arm is always 10 % slower than the baseline.
  std::vector<double> arm, baseline;
  for (double speed = 1; speed < 1e8; speed *= 10) {
    baseline.push_back(speed);
    arm.push_back(1.1 * speed);
  }
  const auto ratio = paired_ratio(arm, baseline);
  ASSERT_TRUE(ratio && ratio->interval);
  EXPECT_NEAR(ratio->median, 1.1, 1e-9);
  EXPECT_NEAR(ratio->interval->low, 1.1, 1e-9);
  EXPECT_EQ(judge(ratio->interval), Verdict::kWorse);
  EXPECT_FALSE(paired_ratio({}, {}));
  EXPECT_THROW((void)paired_ratio({1}, {0}), std::invalid_argument);
  EXPECT_THROW((void)paired_ratio({1, 2}, {1}), std::invalid_argument);
}

TEST(UnpairedRatio, CoversTheShiftAndSeesTenPercent) {
  constexpr int kRuns = 4'000;
  std::mt19937_64 random(3);
  int covered = 0;
  int flagged = 0;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> sample(8), baseline(8);
    for (double& value : sample) value = 1.1 * std::exp(0.03 * normal(random));
    for (double& value : baseline) value = std::exp(0.03 * normal(random));
    const auto ratio = unpaired_ratio(sample, baseline);
    ASSERT_TRUE(ratio && ratio->interval);
    covered += ratio->interval->low <= 1.1 && 1.1 <= ratio->interval->high;
    flagged += ratio->interval->low > 1;
  }
  EXPECT_GE(static_cast<double>(covered) / kRuns, 0.93);
  EXPECT_LE(static_cast<double>(covered) / kRuns, 0.97);
  EXPECT_GE(static_cast<double>(flagged) / kRuns, 0.99);
}

TEST(UnpairedRatio, TheSmallestSamplesWithAnInterval) {
  EXPECT_FALSE(unpaired_ratio({1, 2, 3}, {1, 2, 3})->interval) << "2/20 is more than 5 %";
  const auto four = unpaired_ratio({2, 2.1, 2.2, 2.3}, {1, 1.1, 1.2, 1.3});
  ASSERT_TRUE(four->interval) << "2/70 is less";
  EXPECT_NEAR(four->interval->low, 2 / 1.3, 1e-9);
  EXPECT_NEAR(four->interval->high, 2.3 / 1, 1e-9);
  EXPECT_FALSE(unpaired_ratio({}, {1}));
  // Beyond the exact tables: the normal approximation.
  std::vector<double> many(40, 1.0);
  EXPECT_EQ(unpaired_ratio(many, many)->interval, (Interval{1, 1}));
}

TEST(Judge, ByTheInterval) {
  EXPECT_EQ(judge(Interval{0.8, 0.99}), Verdict::kBetter);
  EXPECT_EQ(judge(Interval{1.01, 1.2}), Verdict::kWorse);
  EXPECT_EQ(judge(Interval{0.96, 1.04}), Verdict::kEquivalent);
  EXPECT_EQ(judge(Interval{0.94, 1.04}), Verdict::kInconclusive);
  EXPECT_EQ(judge(Interval{1, 1.04}), Verdict::kEquivalent) << "1 is not excluded";
  EXPECT_EQ(judge(std::nullopt), Verdict::kInconclusive);
}

}  // namespace
}  // namespace vmm::stats
