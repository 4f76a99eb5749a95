// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>

#include "experiment/run_config.hpp"

namespace vmm::experiment {

// The options of one guest: the same words for argv, for an arm of a comparison's file and for a grid.
struct GuestOption {
  const char* name;  // without dashes
  const char* type;
  const char* help;
};
std::span<const GuestOption> guest_options() noexcept;

// "guest-spin" -> "50us"; only what was given.
using OptionText = std::map<std::string, std::string, std::less<>>;

// Throws BadInput: one line that names the option, the value, the limit, what would work. Looks at no file and no host.
GuestConfig parse_guest_options(const OptionText& text);

}  // namespace vmm::experiment
