// SPDX-License-Identifier: Apache-2.0
#include "boot/command_line.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "base/error.hpp"

namespace vmm::boot {
namespace {

// More lost words than these are only counted, and each is cut at this length: the message stays one readable line.
constexpr std::size_t kWordsShown = 8;
constexpr std::size_t kWordCharactersShown = 60;

bool is_control(char c) {
  const auto value = static_cast<unsigned char>(c);
  return (value < 0x20 && c != '\t') || value == 0x7f;
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

// The words that do not lie wholly within the first `capacity` characters.
std::vector<std::string_view> words_beyond(std::string_view text, std::uint64_t capacity) {
  std::vector<std::string_view> lost;
  std::size_t begin = 0;
  while (begin < text.size()) {
    if (is_blank(text[begin])) {
      ++begin;
      continue;
    }
    bool quoted = false;
    std::size_t end = begin;
    while (end < text.size() && (quoted || !is_blank(text[end]))) {
      if (text[end] == '"') quoted = !quoted;
      ++end;
    }
    if (end > capacity) lost.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return lost;
}

std::string shortened(std::string_view word) {
  if (word.size() <= kWordCharactersShown) return std::string(word);
  return fmt::format("{}...", word.substr(0, kWordCharactersShown));
}

}  // namespace

void CommandLine::check_characters(std::string_view words) const {
  const auto bad = std::ranges::find_if(words, is_control);
  if (bad != words.end()) {
    throw base::BadInput(fmt::format(
        "{}: character {} of '{}' is the control character {:#04x}; printable characters and blanks work", option_,
        bad - words.begin() + 1, shortened(words.substr(0, words.find(*bad))), static_cast<unsigned char>(*bad)));
  }
}

void CommandLine::append(std::string_view words) {
  if (words.empty()) return;
  if (!text_.empty()) text_ += ' ';
  text_ += words;
}

CommandLine& CommandLine::add(std::string_view words) {
  check_characters(words);
  if (std::ranges::count(words, '"') % 2 != 0) {
    throw base::BadInput(fmt::format("{}: '{}' has a double quote that is left open; close it, or leave it out",
                                     option_, shortened(words)));
  }
  append(words);
  return *this;
}

CommandLine& CommandLine::add(std::string_view key, std::string_view value) {
  check_characters(key);
  check_characters(value);
  if (key.empty() || std::ranges::any_of(key, [](char c) { return is_blank(c) || c == '"' || c == '='; })) {
    throw base::BadInput(
        fmt::format("{}: '{}' is no name of a parameter; it must not be empty or have blanks, quotes or '='", option_,
                    shortened(key)));
  }
  if (value.find('"') != value.npos) {
    throw base::BadInput(
        fmt::format("{}: the value '{}' of {} has a double quote, which the kernel cannot be given "
                    "within a value; leave it out",
                    option_, shortened(value), shortened(key)));
  }
  const bool quote = std::ranges::any_of(value, is_blank);
  append(fmt::format(fmt::runtime(quote ? "{}=\"{}\"" : "{}={}"), key, value));
  return *this;
}

const std::string& CommandLine::within(std::uint64_t capacity, std::string_view whose) const {
  if (text_.size() <= capacity) return text_;
  const std::vector<std::string_view> lost = words_beyond(text_, capacity);
  std::string list;
  for (std::size_t i = 0; i < std::min(lost.size(), kWordsShown); ++i) {
    list += fmt::format("{}'{}'", i == 0 ? "" : ", ", shortened(lost[i]));
  }
  if (lost.size() > kWordsShown) list += fmt::format(" and {} more", lost.size() - kWordsShown);
  if (lost.empty()) list = "none but blanks";
  throw base::BadInput(fmt::format("{}: {} characters are {} more than {} takes ({}); these words would be lost: {}",
                                   option_, text_.size(), text_.size() - capacity, whose, capacity, list));
}

}  // namespace vmm::boot
