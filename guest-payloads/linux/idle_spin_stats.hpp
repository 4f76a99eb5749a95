// SPDX-License-Identifier: Apache-2.0
// debugfs idle_spin/stats of the patched kernel: what became of the spins, per CPU.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "proc_interrupts.hpp"

namespace guest {

struct IdleSpinStats {
  std::optional<std::uint64_t> remote_hits;  // the waker saw the polling flag: HLT and IPI saved
  std::optional<std::uint64_t> local_hits;   // an interrupt of this CPU's own brought the work: HLT saved
  std::optional<std::uint64_t> misses;
  std::optional<std::uint64_t> spin_ns;
  std::vector<std::uint64_t> gaps;  // idle periods; value b counts those of 2^(b-1) to 2^b - 1 ns
};

// One line a possible CPU: "cpu 0 remote_hits 5 … gaps 0 1 …": names with a value each, last "gaps" with all of its
// values. Unknown names are passed over; a line that breaks this form is left out.
inline std::map<unsigned, IdleSpinStats> parse_idle_spin_stats(std::string_view text) {
  std::map<unsigned, IdleSpinStats> result;
  while (!text.empty()) {
    std::string_view line = detail::next_line(text);
    if (detail::next_word(line) != "cpu") continue;
    const auto cpu = detail::to_number(detail::next_word(line));
    if (!cpu) continue;
    IdleSpinStats stats;
    bool valid = true;
    for (std::string_view name = detail::next_word(line); !name.empty() && valid; name = detail::next_word(line)) {
      if (name == "gaps") {
        for (std::string_view word = detail::next_word(line); !word.empty(); word = detail::next_word(line)) {
          const auto value = detail::to_number(word);
          valid = valid && value.has_value();
          stats.gaps.push_back(value.value_or(0));
        }
        break;
      }
      const auto value = detail::to_number(detail::next_word(line));
      valid = value.has_value();
      if (name == "remote_hits") stats.remote_hits = value;
      if (name == "local_hits") stats.local_hits = value;
      if (name == "misses") stats.misses = value;
      if (name == "spin_ns") stats.spin_ns = value;
    }
    if (valid) result.emplace(static_cast<unsigned>(*cpu), std::move(stats));
  }
  return result;
}

}  // namespace guest
