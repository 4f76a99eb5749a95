// SPDX-License-Identifier: Apache-2.0
//
// The line protocol of a workload, the same in the guest (under the agent) and on the host:
//   set up; print "ready"; wait for the line "go" on stdin; run; print "done {JSON}"; exit 0.
// The JSON has seconds (of the run alone), operations, latency_us (or null), and what else the workload knows.
// Exit status: 0; 1 the run failed; 2 bad options. Errors are one line on stderr.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "json_writer.hpp"
#include "options.hpp"

namespace guest {

inline std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

// As time.sleep() of Python does it: a relative sleep, with the task's timer slack. Continued after a signal.
inline void sleep_ns(std::uint64_t ns) {
  timespec left{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
}

[[noreturn]] inline void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// All of it, however often the kernel takes a part. Throws std::system_error.
inline void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_errno("write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Prints "ready" and waits for "go". Throws when stdin ends or says something else.
inline void wait_for_go() {
  write_all(STDOUT_FILENO, "ready\n");
  std::string line;
  while (true) {
    char c = 0;
    const ssize_t got = read(STDIN_FILENO, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("stdin");
    if (got == 0) throw std::runtime_error("stdin ended before the line \"go\"");
    if (c == '\n') break;
    if (line.size() < 16) line += c;
  }
  if (line != "go") throw std::runtime_error("expected the line \"go\" on stdin, got \"" + line + "\"");
}

inline void report_done(const JsonWriter& result) {
  write_all(STDOUT_FILENO, "done " + result.object() + "\n");
}

// main() of a workload: `body` gets the options.
template <class Body>
int run_workload(const char* name, int argc, char** argv, Body body) {
  const auto complain = [name](const char* what) {
    const std::string line = std::string(name) + ": " + what + "\n";
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nobody to tell
  };
  try {
    Options options(std::vector<std::string>(argv + 1, argv + argc));
    body(options);
    return 0;
  } catch (const OptionError& error) {
    complain(error.what());
    return 2;
  } catch (const std::exception& error) {
    complain(error.what());
    return 1;
  }
}

}  // namespace guest
