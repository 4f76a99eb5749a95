// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace vmm::experiment {

// One run of a workload binary on this host, by the same line protocol as in the guest (docs/protocol.md): it says
// "ready", is told "go", says "done {json}".
struct NativeResult {
  int status = 0;  // 0, or why it failed in `problem`
  std::string problem;
  nlohmann::json result;  // the object after "done"
};

// Runs `binary` with --key=value arguments; kills it after `timeout`. Throws HostUnable when it cannot be started.
NativeResult run_native(const std::filesystem::path& binary, const std::map<std::string, std::string>& args,
                        std::chrono::milliseconds timeout);

// Where the built workloads lie: ../guest-bin beside the executable's directory.
std::filesystem::path native_workload_path(const std::string& workload);

}  // namespace vmm::experiment
