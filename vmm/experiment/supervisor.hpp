// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/unique_fd.hpp"

namespace vmm::experiment {

// Blocks the signals that a Supervisor reads, for this thread and all it creates later. Construct first thing in main,
// before any thread exists. Ignores SIGPIPE: a closed pipe is an error of write(2).
void block_supervised_signals();

// Undoes block_supervised_signals() in this thread, but for SIGPIPE.
void unblock_supervised_signals();

// The I/O thread of a run: signals, time-out, watchdog, periodic work and console input, in one poll loop. It never
// touches the guest itself but by the callbacks.
class Supervisor {
 public:
  struct Config {
    std::uint64_t timeout_ms = 0;   // 0: none
    std::uint64_t watchdog_ms = 0;  // 0: none
    std::uint64_t period_ms = 0;    // 0: none
    bool read_signals = true;
    bool read_stdin = false;
  };
  struct Callbacks {
    std::function<void()> on_timeout;
    std::function<std::uint64_t()> signs_of_life;  // any change restarts the watchdog
    std::function<void()> on_wedged;
    std::function<void(int signal)> on_end_signal;  // SIGINT, SIGTERM, SIGHUP
    std::function<void()> on_dump_signal;           // SIGUSR1
    std::function<void()> on_period;
    std::function<std::size_t(std::string_view)> on_input;  // bytes taken
  };

  Supervisor(const Config& config, Callbacks callbacks);
  ~Supervisor();  // ends the thread
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

 private:
  void loop();

  Config config_;
  Callbacks callbacks_;
  base::UniqueFd signals_;
  base::UniqueFd quit_;
  std::thread thread_;
};

// Puts a terminal on standard input into raw mode, and back on every way out of the scope; nothing when standard input
// is no terminal.
class RawTerminal {
 public:
  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

}  // namespace vmm::experiment
