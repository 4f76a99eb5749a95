// SPDX-License-Identifier: Apache-2.0
// The statistics on noise as it is: trials that were recorded (docs/results/aa-nested.csv), resampled. What the whole
// recording says is the truth, and a comparison of few blocks drawn from it must find it as often as promised.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "stats/inference.hpp"

namespace vmm::stats {
namespace {

constexpr int kRuns = 20'000;
// Two standard errors of a share near 5 % in so many runs.
constexpr double kSimulationError = 0.003;
constexpr std::array<std::size_t, 5> kBlocks{6, 8, 12, 16, 24};

// One value a block of two arms that are the same.
struct Recording {
  std::vector<double> a, b;
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::stringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

Recording recorded(const std::string& column) {
  std::ifstream file(AA_RECORDING);
  std::string line;
  std::getline(file, line);
  if (line.ends_with('\r')) line.pop_back();
  const std::vector<std::string> names = cells_of(line);
  const auto index = static_cast<std::size_t>(std::ranges::find(names, column) - names.begin());
  std::map<int, double> a, b;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.at(0) == "\"host\"" || cells.at(3) != "true") continue;
    (cells.at(0).ends_with("(again)\"") ? b : a)[std::stoi(cells.at(1))] = std::stod(cells.at(index));
  }
  Recording recording;
  for (const auto& [block, value] : a) {
    if (!b.contains(block)) continue;
    recording.a.push_back(value);
    recording.b.push_back(b.at(block));
  }
  return recording;
}

// As if the blocks had been run anew: drawn with replacement; which arm came first in a pair is chance too.
Recording drawn(const Recording& from, std::size_t blocks, std::mt19937_64& random) {
  Recording sample;
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::size_t block = random() % from.a.size();
    const bool swap = random() % 2 == 0;
    sample.a.push_back(swap ? from.b[block] : from.a[block]);
    sample.b.push_back(swap ? from.a[block] : from.b[block]);
  }
  return sample;
}

std::vector<double> scaled(std::vector<double> values, double by) {
  for (double& value : values) value *= by;
  return values;
}

class RecordedTrials : public testing::TestWithParam<const char*> {};

TEST_P(RecordedTrials, AnIntervalCoversTheMedian93To97Percent) {
  const Recording all = recorded(GetParam());
  ASSERT_GE(all.a.size(), 40U);
  std::vector<double> logs;
  for (std::size_t i = 0; i < all.a.size(); ++i) logs.push_back(std::log(all.a[i]));
  const double truth = median(logs);
  for (const std::size_t blocks : kBlocks) {
    std::mt19937_64 random(blocks);
    int covered = 0;
    for (int run = 0; run < kRuns; ++run) {
      std::vector<double> values(blocks);
      for (double& value : values) value = logs[random() % logs.size()];
      const auto interval = median_interval(values);
      covered += interval && interval->low <= truth && truth <= interval->high;
    }
    const double share = static_cast<double>(covered) / kRuns;
    std::cout << GetParam() << ", " << blocks << " blocks: covered in " << 100 * share << " %\n";
    EXPECT_GE(share, 0.93) << blocks << " blocks";
    EXPECT_LE(share, 0.97) << blocks << " blocks";
  }
}

TEST_P(RecordedTrials, TheSameArmTwiceIsFlaggedAtMostOneTimeInTwenty) {
  const Recording all = recorded(GetParam());
  for (const std::size_t blocks : kBlocks) {
    std::mt19937_64 random(blocks);
    int flagged = 0;
    for (int run = 0; run < kRuns; ++run) {
      const Recording sample = drawn(all, blocks, random);
      const Verdict verdict = judge(paired_ratio(sample.a, sample.b)->interval);
      flagged += verdict == Verdict::kBetter || verdict == Verdict::kWorse;
    }
    const double share = static_cast<double>(flagged) / kRuns;
    std::cout << GetParam() << ", " << blocks << " blocks: flagged in " << 100 * share << " %\n";
    EXPECT_LE(share, 0.05 + kSimulationError) << blocks << " blocks";
  }
}

INSTANTIATE_TEST_SUITE_P(Each, RecordedTrials, testing::Values("seconds", "hlt_exits_per_op", "ipis_per_op"));

// Wakeups: what wakes an idle vCPU, counted as HLT exits and as IPIs.
class RecordedWakeups : public testing::TestWithParam<const char*> {};

TEST_P(RecordedWakeups, TenPercentMoreAreFlagged) {
  const Recording all = recorded(GetParam());
  std::mt19937_64 random(10);
  int by_block = 0;
  int between_files = 0;
  for (int run = 0; run < kRuns; ++run) {
    const Recording sample = drawn(all, 8, random);
    const std::vector<double> more = scaled(sample.a, 1.1);
    by_block += judge(paired_ratio(more, sample.b)->interval) == Verdict::kWorse;
    // Two files of `vmm check`: their blocks have nothing in common.
    const Recording other = drawn(all, 8, random);
    between_files += unpaired_ratio(more, other.b)->interval->low > 1;
  }
  std::cout << GetParam() << ": 10 % more flagged by block in " << 100.0 * by_block / kRuns << " %, between files in "
            << 100.0 * between_files / kRuns << " %\n";
  EXPECT_GE(static_cast<double>(by_block) / kRuns, 0.95);
  EXPECT_GE(static_cast<double>(between_files) / kRuns, 0.95);
}

INSTANTIATE_TEST_SUITE_P(Each, RecordedWakeups, testing::Values("hlt_exits_per_op", "ipis_per_op"));

}  // namespace
}  // namespace vmm::stats
