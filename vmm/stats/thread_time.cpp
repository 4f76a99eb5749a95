// SPDX-License-Identifier: Apache-2.0
#include "stats/thread_time.hpp"

#include <charconv>
#include <exception>
#include <fmt/format.h>
#include <limits>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/file.hpp"

namespace vmm::stats {
namespace {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(" \t\n", at)) != text.npos) {
    const std::size_t end = text.find_first_of(" \t\n", at);
    words.push_back(text.substr(at, end == text.npos ? text.npos : end - at));
    if (end == text.npos) break;
    at = end;
  }
  return words;
}

std::optional<std::uint64_t> number_of(std::string_view word) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return number;
}

// The number after "\nNAME:".
std::optional<std::uint64_t> line_number(std::string_view text, std::string_view name) {
  const std::string label = fmt::format("\n{}:", name);
  const std::size_t at = text.find(label);
  if (at == text.npos) return std::nullopt;
  const std::size_t start = at + label.size();
  const auto words = words_of(text.substr(start, text.find('\n', start) - start));
  return words.size() == 1 ? number_of(words[0]) : std::nullopt;
}

std::uint64_t ticks_per_second() {
  const long ticks = ::sysconf(_SC_CLK_TCK);
  return ticks > 0 ? static_cast<std::uint64_t>(ticks) : 100;
}

Value nanoseconds_of_ticks(std::uint64_t ticks) {
  const std::uint64_t tick_ns = 1'000'000'000 / ticks_per_second();
  if (ticks > std::numeric_limits<std::uint64_t>::max() / tick_ns) {
    return Value::null(Unit::kNanoseconds, Source::kRusage, "exceeds 64 bits of nanoseconds");
  }
  return Value::number(ticks * tick_ns, Unit::kNanoseconds, Source::kRusage);
}

// The file's parsed content, or the reason why there is none.
template <typename Parse>
auto read_parsed(pid_t thread, const char* file, Parse parse)
    -> std::pair<decltype(parse(std::string_view())), std::string> {
  const std::string path = fmt::format("/proc/self/task/{}/{}", thread, file);
  try {
    auto parsed = parse(base::read_text(path));
    if (parsed) return {parsed, {}};
    return {std::nullopt, path + " has an unknown form"};
  } catch (const std::exception& error) {
    return {std::nullopt, error.what()};
  }
}

}  // namespace

std::optional<ThreadStat> parse_thread_stat(std::string_view text) {
  // Field 2 is the comm in parentheses, which may hold blanks and parentheses itself: count from the last ')'.
  const std::size_t close = text.rfind(')');
  if (close == text.npos) return std::nullopt;
  const auto words = words_of(text.substr(close + 1));  // words[0] is field 3
  constexpr std::size_t kFirst = 3;
  if (words.size() <= 43 - kFirst) return std::nullopt;
  const auto user = number_of(words[14 - kFirst]);
  const auto system = number_of(words[15 - kFirst]);
  const auto guest = number_of(words[43 - kFirst]);
  if (!user || !system || !guest) return std::nullopt;
  return ThreadStat{*user, *system, *guest};
}

std::optional<ThreadSchedstat> parse_thread_schedstat(std::string_view text) {
  const auto words = words_of(text);
  if (words.size() < 2) return std::nullopt;
  const auto on_cpu = number_of(words[0]);
  const auto delay = number_of(words[1]);
  if (!on_cpu || !delay) return std::nullopt;
  return ThreadSchedstat{*on_cpu, *delay};
}

std::optional<ThreadSwitches> parse_thread_status(std::string_view text) {
  const auto voluntary = line_number(text, "voluntary_ctxt_switches");
  const auto involuntary = line_number(text, "nonvoluntary_ctxt_switches");
  if (!voluntary || !involuntary) return std::nullopt;
  return ThreadSwitches{*voluntary, *involuntary};
}

std::optional<std::uint64_t> parse_thread_blocked_ns(std::string_view sched_text) {
  // "sum_sleep_runtime : 12.345678", up to Linux 5.15 "se.statistics.sum_sleep_runtime".
  constexpr std::string_view kName = "sum_sleep_runtime";
  constexpr std::size_t kDecimals = 6;
  const std::size_t at = sched_text.find(kName);
  if (at == sched_text.npos) return std::nullopt;
  const std::string_view rest = sched_text.substr(at + kName.size());
  const auto words = words_of(rest.substr(0, rest.find('\n')));
  if (words.size() != 2 || words[0] != ":") return std::nullopt;
  const std::size_t point = words[1].find('.');
  if (point == words[1].npos || words[1].size() - point - 1 != kDecimals) return std::nullopt;
  return number_of(std::string(words[1].substr(0, point)) + std::string(words[1].substr(point + 1)));
}

void merge_thread_time(VcpuSnapshot& into, pid_t thread) {
  const auto set = [&](const char* name, Value value) { into.counters.insert_or_assign(name, std::move(value)); };
  const auto fail = [&](const char* name, Unit unit, const std::string& reason) {
    set(name, Value::null(unit, Source::kRusage, reason));
  };
  const auto ns = [](std::uint64_t number) { return Value::number(number, Unit::kNanoseconds, Source::kRusage); };

  if (const auto [stat, reason] = read_parsed(thread, "stat", parse_thread_stat); stat) {
    set("cpu_guest_ns", nanoseconds_of_ticks(stat->guest_ticks));
    set("cpu_user_ns", nanoseconds_of_ticks(stat->user_ticks));
    set("cpu_system_ns", nanoseconds_of_ticks(stat->system_ticks));
  } else {
    for (const char* name : {"cpu_guest_ns", "cpu_user_ns", "cpu_system_ns"}) fail(name, Unit::kNanoseconds, reason);
  }
  if (const auto [sched, reason] = read_parsed(thread, "schedstat", parse_thread_schedstat); sched) {
    set("cpu_on_ns", ns(sched->on_cpu_ns));
    set("run_delay_ns", ns(sched->run_delay_ns));
  } else {
    for (const char* name : {"cpu_on_ns", "run_delay_ns"}) fail(name, Unit::kNanoseconds, reason);
  }
  if (const auto [blocked, reason] = read_parsed(thread, "sched", parse_thread_blocked_ns); blocked) {
    set("blocked_ns", ns(*blocked));
  } else {
    fail("blocked_ns", Unit::kNanoseconds,
         reason.ends_with("unknown form") ? "the host does not count it: sysctl kernel.sched_schedstats is 0" : reason);
  }
  if (const auto [switches, reason] = read_parsed(thread, "status", parse_thread_status); switches) {
    set("switches_voluntary", Value::count(switches->voluntary, Source::kRusage));
    set("switches_involuntary", Value::count(switches->involuntary, Source::kRusage));
  } else {
    for (const char* name : {"switches_voluntary", "switches_involuntary"}) fail(name, Unit::kCount, reason);
  }
}

}  // namespace vmm::stats
