// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vmm::experiment {

// Text for XML and HTML, elements and attributes: markup's own characters as entities, control characters and bytes
// that are no UTF-8 as "?". Pure.
std::string escape_markup(std::string_view text);

}  // namespace vmm::experiment
