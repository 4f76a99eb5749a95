// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace vmm::app {

// A result file of `vmm compare`, parsed. Throws BadInput naming the command and the file: unreadable, too large, no
// JSON.
nlohmann::ordered_json read_result(const char* command, const std::filesystem::path& path);

}  // namespace vmm::app
