// SPDX-License-Identifier: Apache-2.0
// A process of the agent, in a process group of its own, with pipes at its stdin and stdout.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace guest {

class Child {
 public:
  // `arguments` includes the program's path. stderr stays the agent's: the console. Throws std::system_error when the
  // program cannot be started.
  explicit Child(const std::vector<std::string>& arguments);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  // Kills what is left of the group.
  ~Child();

  enum class Read { kLine, kEnd, kTimeout };
  // The next line of stdout, without its newline. At kEnd `line` has what came after the last newline.
  Read read_line(std::string& line, std::chrono::milliseconds limit);
  // False when nobody reads it any more.
  bool write_line(const std::string& line);
  void close_stdin();

  // Waits for the end; reaps everybody else's orphans on the way, as PID 1 must. Nothing when it takes longer.
  // The status as a shell has it: the exit value, or 128 + the signal.
  std::optional<int> wait(std::chrono::milliseconds limit);
  void kill();

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
  int stdout_ = -1;
  std::string pending_;
  std::optional<int> status_;
};

}  // namespace guest
