// SPDX-License-Identifier: Apache-2.0
#include "experiment/markup.hpp"

#include <nlohmann/json.hpp>

namespace vmm::experiment {

std::string escape_markup(std::string_view text) {
  // nlohmann's dump replaces what is no UTF-8; the quotes around and its escapes of ASCII are undone by parsing again.
  const std::string valid =
      nlohmann::json::parse(nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))
          .get<std::string>();
  std::string out;
  for (const char c : valid) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
  }
  return out;
}

}  // namespace vmm::experiment
