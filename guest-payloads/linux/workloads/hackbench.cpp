// SPDX-License-Identifier: Apache-2.0
// rt-tests' hackbench (PROGRAM below, Debian's) in the line protocol: --groups (1) of --fds (4) senders and as many
// receivers, each sender --loops (100) messages to each receiver of its group, by sockets or --pipe=1.
// `seconds`: hackbench's own time, to the millisecond. `operations`: messages. The counted interval also holds the
// start and the end of its processes.

#include <charconv>
#include <optional>

#include "processes.hpp"

namespace {

constexpr const char* kProgram = "/usr/bin/hackbench";

// The milliseconds in "Time: 0.123" (hackbench.c, main()); nothing when there is no such line.
std::optional<std::uint64_t> time_ms(std::string_view output) {
  constexpr std::string_view kLabel = "Time: ";
  constexpr std::size_t kDecimals = 3;
  const std::size_t at = output.find(kLabel);
  if (at == output.npos) return std::nullopt;
  std::string digits(output.substr(at + kLabel.size()));
  digits.erase(std::min(digits.find('\n'), digits.size()));
  const std::size_t point = digits.find('.');
  if (point == digits.npos || digits.size() - point - 1 != kDecimals) return std::nullopt;
  digits.erase(point, 1);
  std::uint64_t ms = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ms);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return ms;
}

// Runs hackbench, and returns what it writes to its standard output.
std::string output_of(std::vector<std::string> arguments) {
  int fds[2];
  if (pipe(fds) != 0) guest::throw_errno("pipe");
  guest::Fd read_end(fds[0]);
  guest::Fd write_end(fds[1]);
  const pid_t child = guest::start_process("hackbench", [&] {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (dup2(write_end.get(), STDOUT_FILENO) < 0) guest::throw_errno("dup2");
    write_end.reset();
    read_end.reset();
    execv(kProgram, argv.data());
    guest::throw_errno(kProgram);
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
  guest::expect_success(child, "hackbench");
  return output;
}

}  // namespace

int main(int argc, char** argv) {
  return guest::run_workload("hackbench", argc, argv, [](guest::Options& options) {
    const std::uint64_t groups = options.number("groups", 1, 1, 100);
    const std::uint64_t fds = options.number("fds", 4, 1, 100);
    const std::uint64_t loops = options.number("loops", 100, 1, 10'000'000);
    const bool by_pipe = options.number("pipe", 0, 0, 1) == 1;
    options.finish();
    if (access(kProgram, X_OK) != 0) guest::throw_errno(kProgram);
    std::vector<std::string> arguments{kProgram, "--groups=" + std::to_string(groups), "--fds=" + std::to_string(fds),
                                       "--loops=" + std::to_string(loops)};
    if (by_pipe) arguments.emplace_back("--pipe");
    guest::wait_for_go();
    const std::string output = output_of(std::move(arguments));
    const auto ms = time_ms(output);
    if (!ms) throw std::runtime_error("hackbench said no time: \"" + output.substr(0, 200) + "\"");
    if (*ms == 0) throw std::runtime_error("hackbench took no millisecond: more --loops can be measured");
    guest::report_done(guest::JsonWriter()
                           .field_billionths("seconds", *ms * 1'000'000)
                           .field("operations", groups * fds * fds * loops)
                           .field_null("latency_us"));
  });
}
