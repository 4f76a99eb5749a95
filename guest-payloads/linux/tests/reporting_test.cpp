// SPDX-License-Identifier: Apache-2.0
// What workloads take and report: options, percentiles, JSON.

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include "json_writer.hpp"
#include "latency.hpp"
#include "options.hpp"

namespace {

using guest::JsonWriter;
using guest::latency_json;
using guest::OptionError;
using guest::Options;
using guest::percentile;

std::vector<std::uint64_t> one_to(std::size_t count) {
  std::vector<std::uint64_t> values(count);
  std::iota(values.begin(), values.end(), 1);
  return values;
}

TEST(Percentile, NearestRank) {
  EXPECT_EQ(percentile(one_to(1000), 500), 500U);
  EXPECT_EQ(percentile(one_to(1000), 900), 900U);
  EXPECT_EQ(percentile(one_to(1001), 500), 501U);
}

TEST(Percentile, NullWhereFewerThanTenLieBeyond) {
  EXPECT_EQ(percentile(one_to(1000), 990), 990U);  // exactly ten beyond
  EXPECT_EQ(percentile(one_to(999), 990), std::nullopt);
  EXPECT_EQ(percentile(one_to(10000), 999), 9990U);
  EXPECT_EQ(percentile(one_to(9999), 999), std::nullopt);
  EXPECT_EQ(percentile(one_to(20), 500), 10U);
  EXPECT_EQ(percentile(one_to(19), 500), std::nullopt);
  EXPECT_EQ(percentile({}, 500), std::nullopt);
}

TEST(Latency, MicrosecondsFromUnsortedNanoseconds) {
  auto samples = one_to(2000);
  for (auto& ns : samples) ns *= 1000;
  std::reverse(samples.begin(), samples.end());
  samples[0] = 123'456'789;  // instead of 2,000,000
  const auto json = nlohmann::json::parse(latency_json(samples));
  EXPECT_EQ(json["count"], 2000);
  EXPECT_DOUBLE_EQ(json["min"], 1.0);
  EXPECT_DOUBLE_EQ(json["p50"], 1000.0);
  EXPECT_DOUBLE_EQ(json["p90"], 1800.0);
  EXPECT_DOUBLE_EQ(json["p99"], 1980.0);
  EXPECT_TRUE(json["p999"].is_null());
  EXPECT_DOUBLE_EQ(json["max"], 123456.789);
}

TEST(Latency, BucketsHoldEverySampleOnceAndAreAnEighthWide) {
  auto samples = one_to(100'000);
  std::reverse(samples.begin(), samples.end());
  const auto buckets = nlohmann::json::parse(latency_json(samples)).at("buckets_below_ns");
  std::uint64_t begin = 1;
  for (const auto& bucket : buckets) {
    const auto end = bucket.at(0).get<std::uint64_t>();
    const auto count = bucket.at(1).get<std::uint64_t>();
    EXPECT_EQ(count, std::min<std::uint64_t>(end, 100'001) - begin) << "one sample of each value";
    EXPECT_LE(end - begin, std::max<std::uint64_t>(1, begin / 8));
    begin = end;
  }
  EXPECT_GT(begin, 100'000U);
  EXPECT_EQ(guest::bucket_end(0), 1U);
  EXPECT_EQ(guest::bucket_end(15), 16U);
  EXPECT_EQ(guest::bucket_end(16), 18U);
}

TEST(Latency, NothingMeasuredIsNullNotZero) {
  const auto json = nlohmann::json::parse(latency_json({}));
  EXPECT_EQ(json["buckets_below_ns"], nlohmann::json::array());
  EXPECT_EQ(json["count"], 0);
  for (const char* name : {"min", "p50", "p90", "p99", "p999", "max"}) EXPECT_TRUE(json[name].is_null()) << name;
}

TEST(JsonWriter, DecimalsKeepTheirPlaces) {
  JsonWriter json;
  json.field_billionths("s", 7).field_thousandths("us", 1000).field_thousandths("big", 18446744073709551615U);
  EXPECT_EQ(json.object(), R"({"s":0.000000007,"us":1.000,"big":18446744073709551.615})");
}

TEST(JsonWriter, AnyTextIsValidJson) {
  const std::string text = "\"\\\n\t\x01 \xc3\xa4";
  const auto json = nlohmann::json::parse(JsonWriter().field("t", text).field("b", true).field_null("n").object());
  EXPECT_EQ(json["t"], text);
  EXPECT_EQ(json["b"], true);
  EXPECT_TRUE(json["n"].is_null());
}

TEST(Options, ValuesDefaultsAndLists) {
  Options options({"--iterations=90000", "--pin-client=0,2-3"});
  EXPECT_EQ(options.number("iterations", 2000, 1, 100000), 90000U);
  EXPECT_EQ(options.number("port", 7, 0, 65535), 7U);
  EXPECT_EQ(options.cpus("pin-client"), (std::vector<unsigned>{0, 2, 3}));
  EXPECT_TRUE(options.cpus("pin-server").empty());
  EXPECT_NO_THROW(options.finish());
}

TEST(Options, BadOnesAreRefusedByName) {
  for (const char* bad : {"iterations=1", "--iterations", "--=1", "-x=1", ""}) {
    EXPECT_THROW(Options({bad}), OptionError) << bad;
  }
  for (const char* bad : {"--n=", "--n=0", "--n=11", "--n=1x", "--n=-1", "--n=99999999999999999999"}) {
    Options options({bad});
    EXPECT_THROW(options.number("n", 1, 1, 10), OptionError) << bad;
  }
  Options unknown({"--other=1"});
  EXPECT_THROW(unknown.finish(), OptionError);
  Options twice({"--n=1", "--n=2"});
  twice.number("n", 1, 1, 10);
  EXPECT_THROW(twice.finish(), OptionError);
}

}  // namespace
