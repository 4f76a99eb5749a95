// SPDX-License-Identifier: Apache-2.0
#include "experiment/progress.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <unistd.h>

#include "base/file.hpp"

namespace vmm::experiment {
namespace {

constexpr std::size_t kCells = 20;
// No more than any terminal has: a bar that wraps cannot be erased.
constexpr std::size_t kColumns = 79;
constexpr std::string_view kErase = "\r\x1b[K";

std::string clock_text(double seconds) {
  constexpr double kMostSeconds = 359'999;
  const auto whole = static_cast<unsigned>(std::lround(std::clamp(seconds, 0.0, kMostSeconds)));
  return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                      : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

std::string progress_bar(const ProgressState& state, std::size_t width) {
  const std::size_t planned = std::max({state.planned, state.done, std::size_t{1}});
  const std::size_t full = kCells * state.done / planned;
  std::string text =
      fmt::format("[{}{}] {}/{}", std::string(full, '#'), std::string(kCells - full, '.'), state.done, planned);
  if (state.left_s >= 0) text += fmt::format(", {} left", clock_text(state.left_s));
  text += ", " + state.now;
  if (text.size() > width) text.resize(width);
  return text;
}

Progress::Progress(int fd, std::string program) : fd_(fd), program_(std::move(program)) {
  const char* terminal = std::getenv("TERM");
  has_bar_ = ::isatty(fd) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

Progress::~Progress() {
  clear();
}

void Progress::line(std::string_view text) {
  const std::lock_guard lock(mutex_);
  const std::string_view erase = bar_.empty() ? std::string_view() : kErase;
  (void)base::write_all(fd_, fmt::format("{}{}: {}\n{}", erase, program_, text, bar_));
}

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  if (!bar_.empty()) (void)base::write_all(fd_, kErase);
  bar_.clear();
}

void Progress::update(const ProgressState& state) {
  if (!has_bar_) return;
  const std::lock_guard lock(mutex_);
  bar_ = progress_bar(state, kColumns);
  (void)base::write_all(fd_, fmt::format("{}{}", kErase, bar_));
}

}  // namespace vmm::experiment
