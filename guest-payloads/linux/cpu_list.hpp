// SPDX-License-Identifier: Apache-2.0
// The kernel's list format, "0-3,5" (Documentation/admin-guide/cputopology.rst).
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "proc_interrupts.hpp"

namespace guest {

inline constexpr unsigned kCpusMaximum = 1024;

// In the order given; nothing when it is no such list, empty, or names a CPU from kCpusMaximum on.
inline std::optional<std::vector<unsigned>> parse_cpu_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::vector<unsigned> cpus;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const std::size_t dash = part.find('-');
    const auto first = detail::to_number(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : detail::to_number(part.substr(dash + 1));
    if (!first || !last || *first > *last || *last >= kCpusMaximum) return std::nullopt;
    for (std::uint64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(static_cast<unsigned>(cpu));
    if (comma == std::string_view::npos) return cpus;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace guest
