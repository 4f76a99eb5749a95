// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vmm::boot {

// Joins words into a command line as Linux takes it apart (lib/cmdline.c, next_arg()): blanks separate, double quotes
// keep blanks together, and nothing escapes a quote.
class CommandLine {
 public:
  // Appends words as they are, after one blank. Throws BadInput, naming `option`, for NUL, newline and other control
  // characters, and for a quote that is left open: it would swallow what follows.
  CommandLine& add(std::string_view words);
  // Appends key=value, quoted when the value has blanks. Throws BadInput too when a value needs quotes and has one.
  CommandLine& add(std::string_view key, std::string_view value);

  explicit CommandLine(std::string_view option = "--cmdline") : option_(option) {}

  const std::string& text() const noexcept { return text_; }
  // The text when it has at most `capacity` characters (without the NUL). Else BadInput that says which words would be
  // lost; `whose` says whose limit it is ("the kernel").
  const std::string& within(std::uint64_t capacity, std::string_view whose) const;

 private:
  void check_characters(std::string_view words) const;
  void append(std::string_view words);

  std::string option_;
  std::string text_;
};

}  // namespace vmm::boot
