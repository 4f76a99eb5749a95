// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "experiment/comparison.hpp"
#include "experiment/run_config.hpp"

namespace vmm::experiment {

struct CompareConfig {
  Comparison comparison;                       // complete()
  std::optional<std::uint64_t> seed;           // of the random order
  std::optional<std::filesystem::path> stats;  // "-" is standard output
  std::optional<std::filesystem::path> csv;
  bool resume = false;  // goes on with the result in `stats`
  ConsoleConfig console{ConsoleConfig::Kind::kOff, {}};
  std::uint64_t timeout_ms = 0;
  std::uint64_t watchdog_ms = 60'000;
};

// Runs the comparison: table to standard output (JSON instead with --stats=-), progress to standard error. Returns the
// exit status. A result file appears whole or not at all, is renewed as the comparison goes on ("partial": true), and
// is what --resume goes on from. SIGINT, SIGTERM, SIGHUP end it after the trial that runs, a second one at once; the
// status is then 128 and the signal's number.
int run_compare(const CompareConfig& config);

}  // namespace vmm::experiment
