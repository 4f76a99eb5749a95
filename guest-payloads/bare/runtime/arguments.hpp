// SPDX-License-Identifier: Apache-2.0
// "key=value key=value": strict. Pure, so that it is unit-tested on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace payload {

// Why an argument was refused; `what` is a literal.
struct ArgumentError {
  std::string_view word;
  std::string_view what;
  std::uint64_t minimum = 0;
  std::uint64_t maximum = 0;  // not 0: the limits belong into the message
};

// A payload asks for every argument it knows, then error() tells the first one that was wrong, or unknown, or given
// twice. Values returned after an error are the defaults.
class Arguments {
 public:
  explicit Arguments(std::string_view text) : text_(text) {
    for (Word word = next(0); word.text.data() != nullptr; word = next(word.end)) {
      const std::size_t equals = word.text.find('=');
      if (equals == std::string_view::npos || equals == 0) {
        refuse({word.text, "not key=value"});
      } else if (count_ == kWordsMaximum) {
        refuse({word.text, "too many arguments"});
      } else {
        const std::string_view value(word.text.data() + equals + 1, word.text.size() - equals - 1);
        words_[count_++] = {word.text, {word.text.data(), equals}, value, false};
      }
    }
  }

  std::uint64_t number(std::string_view key, std::uint64_t fallback, std::uint64_t minimum, std::uint64_t maximum) {
    const Entry* entry = take(key);
    if (entry == nullptr) return fallback;
    std::uint64_t value = 0;
    bool valid = !entry->value.empty() && entry->value.size() <= 19;
    for (const char c : entry->value) {
      valid = valid && c >= '0' && c <= '9';
      value = value * 10 + static_cast<std::uint64_t>(c - '0');
    }
    if (!valid || value < minimum || value > maximum) {
      refuse({entry->word, valid ? "out of range" : "not a number", minimum, maximum});
      return fallback;
    }
    return value;
  }

  // Index of the value among `choices`; the first is the default.
  std::size_t choice(std::string_view key, std::initializer_list<std::string_view> choices) {
    const Entry* entry = take(key);
    if (entry == nullptr) return 0;
    std::size_t index = 0;
    for (const std::string_view choice : choices) {
      if (choice == entry->value) return index;
      ++index;
    }
    refuse({entry->word, "not one of the known values"});
    return 0;
  }

  // nullptr when all was well.
  const ArgumentError* error() {
    for (std::size_t i = 0; i < count_ && !failed_; ++i) {
      if (!words_[i].taken) refuse({words_[i].word, "unknown to this payload, or given twice"});
    }
    return failed_ ? &error_ : nullptr;
  }

 private:
  static constexpr std::size_t kWordsMaximum = 16;
  struct Entry {
    std::string_view word, key, value;
    bool taken = false;
  };
  struct Word {
    std::string_view text;
    std::size_t end;
  };

  Word next(std::size_t position) const {
    while (position < text_.size() && text_[position] == ' ') ++position;
    if (position >= text_.size()) return {{}, position};
    std::size_t end = position;
    while (end < text_.size() && text_[end] != ' ') ++end;
    return {{text_.data() + position, end - position}, end};  // no substr: it can throw
  }
  const Entry* take(std::string_view key) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (words_[i].key == key) {
        words_[i].taken = true;
        return &words_[i];
      }
    }
    return nullptr;
  }
  void refuse(const ArgumentError& error) {
    if (!failed_) error_ = error;
    failed_ = true;
  }

  std::string_view text_;
  Entry words_[kWordsMaximum] = {};
  std::size_t count_ = 0;
  bool failed_ = false;
  ArgumentError error_ = {};
};

}  // namespace payload
