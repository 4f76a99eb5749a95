// SPDX-License-Identifier: Apache-2.0
// Small files of /proc and /sys, below a root that a test may choose.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace guest {

class Files {
 public:
  explicit Files(std::string root = "") : root_(std::move(root)) {}

  // The whole file; nothing when it cannot be opened or read.
  std::optional<std::string> read(const std::string& path) const;
  // The same, without the newline at the end.
  std::optional<std::string> read_line(const std::string& path) const;
  // One write() of `text`. 0, or the errno of open or write.
  int write(const std::string& path, std::string_view text) const;
  bool exists(const std::string& path) const;
  bool executable(const std::string& path) const;
  std::string full(const std::string& path) const { return root_ + path; }

 private:
  std::string root_;
};

}  // namespace guest
