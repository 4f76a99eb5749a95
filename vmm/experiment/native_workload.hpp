// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
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

// A native workload that runs beside something else, from its "go" until stop().
class NativeTask {
 public:
  // Starts `binary` with --key=value arguments, waits for its "ready", says "go". Throws HostUnable when it cannot be
  // started or does not get ready within `timeout`. As soon as `*cancelled` (if given; must outlive this) is set by
  // another thread, the task counts as one that does not end.
  NativeTask(const std::filesystem::path& binary, const std::map<std::string, std::string>& args,
             std::chrono::milliseconds timeout, const std::atomic<bool>* cancelled = nullptr);
  ~NativeTask();  // kills it
  NativeTask(const NativeTask&) = delete;
  NativeTask& operator=(const NativeTask&) = delete;

  // Its result, when it ends by itself within `timeout`; killed otherwise.
  NativeResult finish(std::chrono::milliseconds timeout);
  // Closes its standard input, which tells a task that runs until then to end; its result as above.
  NativeResult stop(std::chrono::milliseconds timeout);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs `binary` to its end; kills it after `timeout` or when cancelled. Throws HostUnable when it cannot be started.
NativeResult run_native(const std::filesystem::path& binary, const std::map<std::string, std::string>& args,
                        std::chrono::milliseconds timeout, const std::atomic<bool>* cancelled = nullptr);

// Where the built workloads lie: ../guest-bin beside the executable's directory.
std::filesystem::path native_workload_path(const std::string& workload);

}  // namespace vmm::experiment
