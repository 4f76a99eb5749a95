// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vmm::base {

// Runs a program found in PATH with `input` on its standard input; what it wrote to standard output. Throws HostUnable
// when it cannot be started (naming `package`, which has it), when it fails, and when it writes more than 64 MiB.
std::string run_filter(const std::vector<std::string>& arguments, std::string_view input, std::string_view package);

}  // namespace vmm::base
