// SPDX-License-Identifier: Apache-2.0
#include "machine/console.hpp"

#include <cerrno>
#include <fmt/format.h>
#include <string_view>
#include <unistd.h>

namespace vmm::machine {
namespace {

constexpr std::string_view kPanic = "Kernel panic - not syncing";  // kernel/panic.c

}  // namespace

void Console::append_output(std::uint8_t byte) {
  const bool printable = (byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\t';
  if (style_ != Style::kSafe || printable) {
    pending_.push_back(static_cast<char>(byte));
  } else if (byte != '\r') {
    pending_ += fmt::format("\\x{:02x}", byte);
  }
}

void Console::write_pending() {
  std::string_view text = pending_;
  while (!text.empty()) {
    const ssize_t put = ::write(fd_, text.data(), text.size());
    if (put < 0 && errno == EINTR && !giving_up_.load(std::memory_order_relaxed)) continue;
    if (put < 0) break;  // a console that cannot be written must not end the run: the last lines are kept in memory
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  pending_.clear();
}

void Console::put(std::uint8_t byte) {
  const std::lock_guard lock(mutex_);
  bytes_.fetch_add(1, std::memory_order_relaxed);
  if (byte == '\n') {
    if (line_.find(kPanic) != std::string::npos) panicked_.store(true, std::memory_order_relaxed);
    lines_.push_back(std::move(line_));
    line_.clear();
    if (lines_.size() > kLastLines) lines_.pop_front();
  } else if (byte != '\r' && line_.size() < kLineLimit) {
    line_ += (byte >= 0x20 && byte < 0x7f) ? std::string(1, static_cast<char>(byte)) : fmt::format("\\x{:02x}", byte);
  }
  if (fd_ < 0) return;
  append_output(byte);
  if (byte == '\n' || style_ == Style::kInteractive || pending_.size() >= kFlushBytes) write_pending();
}

void Console::flush() {
  const std::lock_guard lock(mutex_);
  if (fd_ >= 0) write_pending();
}

std::vector<std::string> Console::last_lines() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines(lines_.begin(), lines_.end());
  if (!line_.empty()) lines.push_back(line_);
  return lines;
}

}  // namespace vmm::machine
