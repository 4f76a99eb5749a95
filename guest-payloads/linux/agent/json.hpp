// SPDX-License-Identifier: Apache-2.0
// nlohmann-json with the order of fields kept and without its iostreams, which would double the size of the agent.
#pragma once

#define JSON_NO_IO 1
#include <nlohmann/json.hpp>

namespace guest {

using Json = nlohmann::ordered_json;

}  // namespace guest
