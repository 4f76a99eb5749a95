// SPDX-License-Identifier: Apache-2.0
#include "base/parse.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <limits>
#include <optional>

#include "base/error.hpp"

namespace vmm::base {
namespace {

struct Suffix {
  std::string_view text;
  std::uint64_t factor;
};

constexpr std::array<Suffix, 4> kDurationSuffixes{{{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};
constexpr std::array<Suffix, 3> kSizeSuffixes{{{"K", 1ULL << 10}, {"M", 1ULL << 20}, {"G", 1ULL << 30}}};

struct Scaled {
  std::uint64_t value;
  std::string_view suffix;
};

// Leading digits and what follows them; nothing for an empty or overflowing number.
std::optional<Scaled> split_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 10);
  if (error != std::errc{} || end == text.data()) return std::nullopt;
  return Scaled{value, text.substr(static_cast<std::size_t>(end - text.data()))};
}

std::optional<std::uint64_t> multiply(std::uint64_t a, std::uint64_t b) {
  if (a != 0 && b > std::numeric_limits<std::uint64_t>::max() / a) return std::nullopt;
  return a * b;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

}  // namespace

std::uint64_t parse_integer(std::string_view option, std::string_view text, Range range) {
  const auto number = split_number(text);
  if (!number || !number->suffix.empty() || number->value < range.minimum || number->value > range.maximum) {
    throw BadInput(
        fmt::format("{}: '{}' is not a whole number from {} to {}", option, text, range.minimum, range.maximum));
  }
  return number->value;
}

std::uint64_t parse_size_bytes(std::string_view option, std::string_view text, Range range) {
  const auto number = split_number(text);
  std::optional<std::uint64_t> bytes;
  if (number && number->suffix.empty()) bytes = number->value;
  if (number && !number->suffix.empty()) {
    const auto* suffix = std::ranges::find(kSizeSuffixes, number->suffix, &Suffix::text);
    if (suffix != kSizeSuffixes.end()) bytes = multiply(number->value, suffix->factor);
  }
  if (!bytes || *bytes < range.minimum || *bytes > range.maximum) {
    throw BadInput(fmt::format("{}: '{}' is not a size from {} to {} (bytes, or with K, M, G as in 256M)", option, text,
                               format_size_bytes(range.minimum), format_size_bytes(range.maximum)));
  }
  return *bytes;
}

std::uint64_t parse_duration_ns(std::string_view option, std::string_view text, std::uint64_t bare_unit_ns,
                                Range range_ns) {
  const auto number = split_number(text);
  std::optional<std::uint64_t> nanoseconds;
  if (number && number->suffix.empty()) nanoseconds = multiply(number->value, bare_unit_ns);
  if (number && !number->suffix.empty()) {
    const auto* suffix = std::ranges::find(kDurationSuffixes, number->suffix, &Suffix::text);
    if (suffix != kDurationSuffixes.end()) nanoseconds = multiply(number->value, suffix->factor);
  }
  if (!nanoseconds || *nanoseconds < range_ns.minimum || *nanoseconds > range_ns.maximum) {
    throw BadInput(fmt::format(
        "{}: '{}' is not a time from {} to {} (a bare number is in units of {}; ns, us, ms, s work)", option, text,
        format_duration_ns(range_ns.minimum), format_duration_ns(range_ns.maximum), format_duration_ns(bare_unit_ns)));
  }
  return *nanoseconds;
}

std::vector<unsigned> parse_cpu_list(std::string_view option, std::string_view text, unsigned limit) {
  const auto fail = [&]() {
    return BadInput(
        fmt::format("{}: '{}' is not a CPU list such as 0,2-3 with each CPU once and below {}", option, text, limit));
  };
  std::vector<unsigned> cpus;
  std::size_t position = 0;
  while (true) {
    const std::size_t comma = text.find(',', position);
    const std::string_view item = text.substr(position, comma == text.npos ? text.npos : comma - position);
    const auto first = split_number(item);
    if (!first) throw fail();
    std::uint64_t last = first->value;
    if (!first->suffix.empty()) {
      if (first->suffix.front() != '-') throw fail();
      const auto end = split_number(first->suffix.substr(1));
      if (!end || !end->suffix.empty() || end->value < first->value) throw fail();
      last = end->value;
    }
    if (last >= limit) throw fail();
    for (std::uint64_t cpu = first->value; cpu <= last; ++cpu) {
      if (std::ranges::find(cpus, static_cast<unsigned>(cpu)) != cpus.end()) throw fail();
      cpus.push_back(static_cast<unsigned>(cpu));
    }
    if (comma == text.npos) return cpus;
    position = comma + 1;
  }
}

NamedParameters parse_named_parameters(std::string_view option, std::string_view text) {
  NamedParameters result;
  const std::size_t colon = text.find(':');
  result.name = text.substr(0, colon);
  if (!is_name(result.name)) {
    throw BadInput(fmt::format("{}: '{}' does not begin with a name (NAME or NAME:key=value,key=value)", option, text));
  }
  if (colon == text.npos) return result;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = equals == item.npos ? std::string_view{} : item.substr(equals + 1);
    const bool value_ok =
        !value.empty() && std::ranges::all_of(value, [](char c) { return c > ' ' && c < 0x7f && c != '"'; });
    if (!is_name(key) || !value_ok || !result.parameters.emplace(key, value).second) {
      throw BadInput(fmt::format("{}: '{}' in '{}' is not key=value with each key once", option, item, text));
    }
    if (comma == rest.npos) return result;
    rest.remove_prefix(comma + 1);
  }
}

std::string format_duration_ns(std::uint64_t nanoseconds) {
  const auto exact = [&](std::uint64_t factor) { return nanoseconds != 0 && nanoseconds % factor == 0; };
  if (exact(1'000'000'000)) return fmt::format("{}s", nanoseconds / 1'000'000'000);
  if (exact(1'000'000)) return fmt::format("{}ms", nanoseconds / 1'000'000);
  if (exact(1'000)) return fmt::format("{}us", nanoseconds / 1'000);
  return fmt::format("{}ns", nanoseconds);
}

std::string format_size_bytes(std::uint64_t bytes) {
  const auto exact = [&](std::uint64_t factor) { return bytes != 0 && bytes % factor == 0; };
  if (exact(1ULL << 30)) return fmt::format("{}G", bytes >> 30);
  if (exact(1ULL << 20)) return fmt::format("{}M", bytes >> 20);
  if (exact(1ULL << 10)) return fmt::format("{}K", bytes >> 10);
  return fmt::format("{}", bytes);
}

}  // namespace vmm::base
