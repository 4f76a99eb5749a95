// SPDX-License-Identifier: Apache-2.0
// Workloads that are somebody else's program: run it, read what it says.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "processes.hpp"

namespace guest {

// Throws where there is no such program.
inline void expect_program(const std::string& path) {
  if (access(path.c_str(), X_OK) != 0) throw_errno(path);
}

// Runs arguments[0] to its end and returns what it wrote to its standard output. Throws when it failed.
inline std::string output_of(std::vector<std::string> arguments) {
  int fds[2];
  if (pipe(fds) != 0) throw_errno("pipe");
  Fd read_end(fds[0]);
  Fd write_end(fds[1]);
  const pid_t child = start_process(arguments.front().c_str(), [&] {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (dup2(write_end.get(), STDOUT_FILENO) < 0) throw_errno("dup2");
    write_end.reset();
    read_end.reset();
    execv(argv.front(), argv.data());
    throw_errno("exec");
  });
  write_end.reset();
  std::string output;
  char chunk[512];
  while (true) {
    const ssize_t got = read(read_end.get(), chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    output.append(chunk, static_cast<std::size_t>(got));
  }
  expect_success(child, arguments.front());
  return output;
}

// The number with exactly `decimals` decimals that ends before `at` in `text` (blanks between are skipped), in units of
// its last decimal; nothing when there is none.
inline std::optional<std::uint64_t> decimal_before(std::string_view text, std::size_t at, std::size_t decimals) {
  constexpr std::string_view kNumber = "0123456789.";
  text = text.substr(0, std::min(at, text.size()));
  const std::size_t last = text.find_last_not_of(' ');
  if (last == text.npos) return std::nullopt;
  text = text.substr(0, last + 1);
  const std::size_t before = text.find_last_not_of(kNumber);
  std::string digits(before == text.npos ? text : text.substr(before + 1));
  const std::size_t point = digits.find('.');
  if (point == digits.npos || point == 0 || digits.size() - point - 1 != decimals) return std::nullopt;
  digits.erase(point, 1);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

}  // namespace guest
