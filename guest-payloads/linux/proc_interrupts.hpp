// SPDX-License-Identifier: Apache-2.0
// /proc/interrupts: how often each CPU took each interrupt.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace guest {

// x86 rows used here (arch/x86/kernel/irq.c and smp.c, 6.1 and 6.12): RES = vector 0xfd; CAL = vectors 0xfb and 0xfc
// together (irq_call_count goes up in both handlers and is printed as it is: TLB is a row of its own that counts
// flushes, not interrupts); LOC = the local timer, 0xec.
struct Interrupts {
  std::vector<unsigned> cpus;                              // of the columns: online CPUs only
  std::map<std::string, std::vector<std::uint64_t>> rows;  // by the name before the colon; one value a column

  // 0 or more; nothing when there is no such row or column.
  std::optional<std::uint64_t> value(const std::string& row, unsigned cpu) const {
    const auto found = rows.find(row);
    if (found == rows.end()) return std::nullopt;
    for (std::size_t i = 0; i < cpus.size() && i < found->second.size(); ++i) {
      if (cpus[i] == cpu) return found->second[i];
    }
    return std::nullopt;
  }
};

namespace detail {

inline std::string_view next_word(std::string_view& text) {
  const std::size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) {
    text = {};
    return {};
  }
  text.remove_prefix(start);
  const std::size_t end = text.find_first_of(" \t");
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(word.size());
  return word;
}

inline std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// Digits only, at most 64 bits.
inline std::optional<std::uint64_t> to_number(std::string_view word) {
  if (word.empty()) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : word) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (value > (UINT64_MAX - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

}  // namespace detail

// Nothing when the text is no table with a header of "CPUn" words. A row ends where its numbers end: ERR and MIS have
// one value only, descriptions follow the others.
inline std::optional<Interrupts> parse_interrupts(std::string_view text) {
  Interrupts result;
  std::string_view header = detail::next_line(text);
  for (std::string_view word = detail::next_word(header); !word.empty(); word = detail::next_word(header)) {
    if (!word.starts_with("CPU")) return std::nullopt;
    const auto cpu = detail::to_number(word.substr(3));
    if (!cpu) return std::nullopt;
    result.cpus.push_back(static_cast<unsigned>(*cpu));
  }
  if (result.cpus.empty()) return std::nullopt;
  while (!text.empty()) {
    std::string_view line = detail::next_line(text);
    std::string_view name = detail::next_word(line);
    if (!name.ends_with(':')) continue;
    name.remove_suffix(1);
    std::vector<std::uint64_t> values;
    while (values.size() < result.cpus.size()) {
      const auto value = detail::to_number(detail::next_word(line));
      if (!value) break;
      values.push_back(*value);
    }
    result.rows.emplace(name, std::move(values));
  }
  return result;
}

}  // namespace guest
