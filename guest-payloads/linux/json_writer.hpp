// SPDX-License-Identifier: Apache-2.0
// Writes one JSON object on one line: all that a workload has to say.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace guest {

class JsonWriter {
 public:
  JsonWriter& field(std::string_view name, std::uint64_t value) { return raw(name, std::to_string(value)); }
  JsonWriter& field(std::string_view name, bool value) { return raw(name, value ? "true" : "false"); }
  JsonWriter& field(std::string_view name, const char* value) { return field(name, std::string_view(value)); }
  JsonWriter& field(std::string_view name, std::string_view value) { return raw(name, quoted(value)); }
  JsonWriter& field_null(std::string_view name) { return raw(name, "null"); }
  // value / 1000, with three decimals.
  JsonWriter& field_thousandths(std::string_view name, std::uint64_t value) { return raw(name, decimal(value, 3)); }
  // value / 10^9, with nine decimals.
  JsonWriter& field_billionths(std::string_view name, std::uint64_t value) { return raw(name, decimal(value, 9)); }
  // `json` is valid JSON already.
  JsonWriter& raw(std::string_view name, std::string_view json) {
    if (!text_.empty()) text_ += ',';
    text_ += quoted(name);
    text_ += ':';
    text_ += json;
    return *this;
  }
  std::string object() const { return "{" + text_ + "}"; }

  // RFC 8259, section 7. Bytes from 0x80 on are passed on as they are.
  static std::string quoted(std::string_view text) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string result = "\"";
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        result += '\\';
        result += c;
      } else if (byte < 0x20) {
        result += "\\u00";
        result += kDigits[byte >> 4];
        result += kDigits[byte & 0xF];
      } else {
        result += c;
      }
    }
    return result + '"';
  }

 private:
  static std::string decimal(std::uint64_t value, unsigned places) {
    std::string digits = std::to_string(value);
    if (digits.size() <= places) digits.insert(0, places + 1 - digits.size(), '0');
    return digits.insert(digits.size() - places, 1, '.');
  }

  std::string text_;
};

}  // namespace guest
