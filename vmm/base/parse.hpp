// SPDX-License-Identifier: Apache-2.0
// Text of options into values with units. Pure; every failure is a BadInput that names the option, the value, the
// limit and what would work.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace vmm::base {

struct Range {
  std::uint64_t minimum;
  std::uint64_t maximum;
};

// A decimal integer without sign or blanks, within `range`.
std::uint64_t parse_integer(std::string_view option, std::string_view text, Range range);

// A size in bytes: digits and an optional suffix K, M, G (binary). Within `range` (bytes).
std::uint64_t parse_size_bytes(std::string_view option, std::string_view text, Range range);

// A duration: digits and an optional suffix ns, us, ms, s; a bare number is in `bare_unit_ns` nanoseconds. The result
// is in nanoseconds, `range_ns` too.
std::uint64_t parse_duration_ns(std::string_view option, std::string_view text, std::uint64_t bare_unit_ns,
                                Range range_ns);

// A CPU list in the kernel's notation, "0,2-3" -> {0, 2, 3}; ascending or not, no duplicates; each below `limit`.
std::vector<unsigned> parse_cpu_list(std::string_view option, std::string_view text, unsigned limit);

// "name:key=value,key=value" -> name and parameters. Names and keys are [A-Za-z0-9_.-]+, values have no blank or comma.
struct NamedParameters {
  std::string name;
  std::map<std::string, std::string> parameters;
  bool operator==(const NamedParameters&) const = default;
};
NamedParameters parse_named_parameters(std::string_view option, std::string_view text);

// 1500 -> "1.5us"; the shortest exact of ns, us, ms, s.
std::string format_duration_ns(std::uint64_t nanoseconds);
// 268435456 -> "256M".
std::string format_size_bytes(std::uint64_t bytes);

}  // namespace vmm::base
