// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace vmm::machine {

// Where the guest's console output goes. Keeps the last lines for crash reports. Thread-safe.
class Console {
 public:
  enum class Style {
    kOff,          // only the last lines are kept
    kSafe,         // control characters shown as \xNN: the guest is not to be trusted with the user's terminal
    kVerbatim,     // every byte, written line by line: a file
    kInteractive,  // every byte at once: a prompt is shown before its newline
  };
  // `fd` is not owned; -1 with kOff.
  Console(Style style, int fd) : fd_(style == Style::kOff ? -1 : fd), style_(style) {}

  void put(std::uint8_t byte);
  void flush();
  std::vector<std::string> last_lines() const;
  // A line of a Linux panic has gone by, however many came after it.
  bool panicked() const noexcept { return panicked_.load(std::memory_order_relaxed); }
  // Grows with every byte: the watchdog's sign of life.
  std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  // Once set, a write that blocks is given up when a signal interrupts it.
  void give_up_blocking() noexcept { giving_up_.store(true, std::memory_order_relaxed); }

  static constexpr std::size_t kLastLines = 20;
  static constexpr std::size_t kLineLimit = 512;
  static constexpr std::size_t kFlushBytes = 4096;

 private:
  void append_output(std::uint8_t byte);
  void write_pending();

  int fd_;
  Style style_;
  mutable std::mutex mutex_;
  std::string pending_;
  std::string line_;
  std::deque<std::string> lines_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<bool> panicked_{false};
  std::atomic<bool> giving_up_{false};
};

}  // namespace vmm::machine
