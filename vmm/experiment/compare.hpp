// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/run_config.hpp"

namespace vmm::experiment {

// One row of a comparison.
struct Arm {
  enum class Kind {
    kHost,   // the workload on this host, without a guest
    kGuest,  // in the guest, with a fixed idle_spin
    kBest,   // in the guest, with the idle_spin that a short search finds
  };
  Kind kind = Kind::kGuest;
  std::uint32_t spin_us = 0;
  bool operator==(const Arm&) const = default;
};

struct CompareConfig {
  GuestConfig guest;
  base::NamedParameters workload{"tcp-pingpong", {}};
  std::vector<Arm> arms{{Arm::Kind::kHost, 0},
                        {Arm::Kind::kGuest, 0},
                        {Arm::Kind::kGuest, 50},
                        {Arm::Kind::kGuest, 220},
                        {Arm::Kind::kBest, 0}};
  unsigned repetitions = 3;
  std::optional<std::uint64_t> seed;  // of the random order
  std::optional<std::filesystem::path> stats;
  ConsoleConfig console{ConsoleConfig::Kind::kOff, {}};
  std::uint64_t timeout_ms = 0;
  std::uint64_t watchdog_ms = 60'000;
};

// "0,50us,1ms,best" -> the arms, the host's row first. Throws BadInput: not a time, out of range, twice.
std::vector<Arm> parse_spin_arms(std::string_view text);

// Runs the comparison: table to standard output (JSON instead with --stats=-), progress to standard error. Returns the
// exit status. All guest arms share one boot, since idle_spin changes at run time; the order within each repetition is
// random.
int run_compare(const CompareConfig& config);

}  // namespace vmm::experiment
