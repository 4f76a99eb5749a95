// SPDX-License-Identifier: Apache-2.0
// What a long comparison tells whoever waits for it: a bar on a terminal, lines elsewhere.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace vmm::experiment {

// How far a comparison is, and what runs now.
struct ProgressState {
  std::size_t done = 0;     // trials
  std::size_t planned = 0;  // as known by now; may grow
  double left_s = 0;        // estimated; below 0: not known yet
  std::string now;
};

// "[######..............] 12/40, 3:05 left, block 3: guest-spin=50us", of at most `width` columns; pure.
std::string progress_bar(const ProgressState& state, std::size_t width);

// May be used by several threads. Texts that cannot be written are lost.
class Progress {
 public:
  // `program` precedes each line. Draws a bar where `fd` is a terminal that can move its cursor ($TERM is not "dumb").
  Progress(int fd, std::string program);
  ~Progress();  // removes the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool has_bar() const noexcept { return has_bar_; }
  void line(std::string_view text);
  // Redraws the bar; nothing without one.
  void update(const ProgressState& state);
  // Removes the bar, before something else is printed; the next update() draws it again.
  void clear();

 private:
  std::mutex mutex_;
  int fd_;
  std::string program_;
  bool has_bar_;
  std::string bar_;  // what is on the screen
};

}  // namespace vmm::experiment
