// SPDX-License-Identifier: Apache-2.0
// One line of text in a fixed buffer, with what it takes to write JSON. No heap, no locale; unit-tested on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace payload {

// Appends to a buffer of `Capacity` bytes. A text that does not fit is cut and full() says so: the caller must look,
// because half a JSON line is no line.
template <std::size_t Capacity>
class Text {
 public:
  std::string_view view() const { return {buffer_, size_}; }
  bool full() const { return full_; }
  void clear() {
    size_ = 0;
    full_ = false;
    first_ = true;
  }

  Text& raw(char c) {
    if (size_ == Capacity) {
      full_ = true;
    } else {
      buffer_[size_++] = c;
    }
    return *this;
  }
  Text& raw(std::string_view text) {
    for (const char c : text) raw(c);
    return *this;
  }
  Text& decimal(std::uint64_t value) {
    char digits[20];
    std::size_t count = 0;
    do {
      digits[count++] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    while (count != 0) raw(digits[--count]);
    return *this;
  }
  // A number: seconds with nine decimals.
  Text& seconds(std::uint64_t ns) {
    separate();
    decimal(ns / 1'000'000'000).raw('.');
    const std::uint64_t rest = ns % 1'000'000'000;
    for (std::uint64_t place = 100'000'000; place != 0; place /= 10) {
      raw(static_cast<char>('0' + rest / place % 10));
    }
    return *this;
  }
  Text& hexadecimal(std::uint64_t value) {
    raw("0x");
    bool leading = true;
    for (int shift = 60; shift >= 0; shift -= 4) {
      const auto digit = static_cast<unsigned>(value >> shift & 0xF);
      if (leading && digit == 0 && shift != 0) continue;
      leading = false;
      raw(static_cast<char>(digit < 10 ? '0' + digit : 'a' + digit - 10));
    }
    return *this;
  }
  // A JSON string: quotes and backslashes escaped, control characters and what is not ASCII shown as '?'.
  Text& quoted(std::string_view text) {
    raw('"');
    for (const char c : text) {
      if (c == '"' || c == '\\') raw('\\');
      raw(c >= 0x20 && c < 0x7F ? c : '?');
    }
    return raw('"');
  }

  Text& open(char bracket) {
    separate();
    first_ = true;
    return raw(bracket);
  }
  Text& close(char bracket) {
    first_ = false;
    return raw(bracket);
  }
  Text& key(std::string_view name) {
    separate();
    first_ = true;  // the value follows without a comma
    return quoted(name).raw(':');
  }
  Text& number(std::uint64_t value) {
    separate();
    return decimal(value);
  }
  Text& string(std::string_view value) {
    separate();
    return quoted(value);
  }
  // A literal that JSON knows: true, false, null.
  Text& literal(std::string_view value) {
    separate();
    return raw(value);
  }
  Text& field(std::string_view name, std::uint64_t value) { return key(name).number(value); }
  Text& field(std::string_view name, std::string_view value) { return key(name).string(value); }

 private:
  void separate() {
    if (!first_) raw(',');
    first_ = false;
  }

  std::size_t size_ = 0;
  bool full_ = false;
  bool first_ = true;
  char buffer_[Capacity] = {};
};

}  // namespace payload
