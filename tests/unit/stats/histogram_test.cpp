// SPDX-License-Identifier: Apache-2.0
#include "stats/histogram.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace vmm::stats {
namespace {

Histogram log2(std::vector<std::uint64_t> counts) {
  Histogram histogram;
  histogram.counts = std::move(counts);
  return histogram;
}

TEST(Histogram, Log2BucketsAreKvms) {
  EXPECT_EQ(log2_bucket(0, 32), 0u);
  EXPECT_EQ(log2_bucket(1, 32), 1u);
  EXPECT_EQ(log2_bucket(2, 32), 2u);
  EXPECT_EQ(log2_bucket(3, 32), 2u);
  EXPECT_EQ(log2_bucket(4, 32), 3u);
  EXPECT_EQ(log2_bucket(~std::uint64_t{0}, 32), 31u);
  EXPECT_EQ(log2_bucket(~std::uint64_t{0}, 65), 64u);
  EXPECT_EQ(log2_bucket(5, 1), 0u);
}

TEST(Histogram, UpperBoundHoldsItsSamples) {
  Histogram histogram = log2(std::vector<std::uint64_t>(33));
  for (const std::uint64_t sample : {0u, 1u, 2u, 3u, 7u, 8u, 1000u}) {
    const auto bound = histogram.upper_bound(log2_bucket(sample, 33)).integer();
    ASSERT_TRUE(bound);
    EXPECT_LT(sample, *bound);
    if (sample > 0) {
      EXPECT_GE(sample, *bound / 2);
    }
  }
  EXPECT_FALSE(histogram.upper_bound(32).known());
}

TEST(Histogram, LinearUpperBound) {
  Histogram histogram = log2({1, 2, 3});
  histogram.scale = Histogram::Scale::kLinear;
  histogram.bucket_size = 100;
  EXPECT_EQ(histogram.upper_bound(0).integer(), 100u);
  EXPECT_EQ(histogram.upper_bound(1).integer(), 200u);
  EXPECT_FALSE(histogram.upper_bound(2).known());
  histogram.bucket_size = ~std::uint64_t{0};
  EXPECT_FALSE(histogram.upper_bound(1).known());
}

TEST(Histogram, DifferenceIsBucketByBucket) {
  EXPECT_EQ(difference(log2({1, 2, 3}), log2({1, 5, 4})).counts, (std::vector<std::uint64_t>{0, 3, 1}));
}

TEST(Histogram, DifferenceRefusesOtherShapesAndSteps) {
  EXPECT_EQ(difference(log2({1, 2}), log2({1, 2, 3})).reason, "buckets differ");
  EXPECT_EQ(difference(log2({1, 2}), log2({2, 1})).reason, "went backwards");
  Histogram linear = log2({1, 2});
  linear.scale = Histogram::Scale::kLinear;
  EXPECT_EQ(difference(linear, log2({1, 2})).reason, "buckets differ");
  const Histogram null = Histogram::null(Unit::kNanoseconds, Source::kGuest, "guest did not report");
  EXPECT_EQ(difference(null, log2({1, 2})).reason, "guest did not report");
  EXPECT_EQ(difference(log2({1, 2}), null).reason, "guest did not report");
}

TEST(Histogram, QuantileNeedsTenSamplesBeyond) {
  Histogram histogram = log2(std::vector<std::uint64_t>(20));
  histogram.counts[5] = 19;
  EXPECT_FALSE(histogram.quantile_upper_bound(0.5).known());
  histogram.counts[5] = 20;
  EXPECT_EQ(histogram.quantile_upper_bound(0.5).integer(), 32u);
  EXPECT_FALSE(histogram.quantile_upper_bound(0.9).known());
  histogram.counts[5] = 100;
  EXPECT_EQ(histogram.quantile_upper_bound(0.9).integer(), 32u);
  EXPECT_FALSE(histogram.quantile_upper_bound(0.99).known());
  histogram.counts[5] = 1000;
  EXPECT_TRUE(histogram.quantile_upper_bound(0.99).known());
}

TEST(Histogram, QuantileFindsTheRightBucket) {
  Histogram histogram = log2(std::vector<std::uint64_t>(20));
  histogram.counts[3] = 500;
  histogram.counts[10] = 500;
  EXPECT_EQ(histogram.quantile_upper_bound(0.5).integer(), 8u);
  EXPECT_EQ(histogram.quantile_upper_bound(0.51).integer(), 1024u);
}

TEST(Histogram, QuantileInTheOpenBucketIsNull) {
  Histogram histogram = log2({0, 0, 100});
  EXPECT_EQ(histogram.quantile_upper_bound(0.5).reason(), "the last bucket is open");
}

TEST(Histogram, QuantileOfNothingIsNull) {
  EXPECT_FALSE(log2({0, 0}).quantile_upper_bound(0.5).known());
  EXPECT_FALSE(log2({}).quantile_upper_bound(0.5).known());
  EXPECT_FALSE(log2({1000, 1000}).quantile_upper_bound(0).known());
  EXPECT_FALSE(log2({1000, 1000}).quantile_upper_bound(1).known());
}

TEST(Histogram, TotalOverflowIsNull) {
  EXPECT_FALSE(log2({~std::uint64_t{0}, 1}).total().known());
  EXPECT_FALSE(log2({~std::uint64_t{0}, 1}).quantile_upper_bound(0.5).known());
}

TEST(Histogram, Json) {
  EXPECT_EQ(to_json(log2({1, 2})).dump(),
            R"({"scale":"log2","unit":"ns","source":"kvm-stats","counts":[1,2],"p50_below":null,"p90_below":null,)"
            R"("p99_below":null})");
  const auto null = to_json(Histogram::null(Unit::kNanoseconds, Source::kGuest, "guest did not report"));
  EXPECT_TRUE(null["counts"].is_null());
  EXPECT_EQ(null["reason"], "guest did not report");
}

}  // namespace
}  // namespace vmm::stats
