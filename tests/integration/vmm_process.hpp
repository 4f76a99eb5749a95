// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace vmm::integration {

// A vmm process with its standard streams in files of a directory of its own.
class VmmProcess {
 public:
  explicit VmmProcess(std::vector<std::string> arguments, std::optional<uid_t> as_user = std::nullopt);
  ~VmmProcess();  // kills it when it still runs
  VmmProcess(const VmmProcess&) = delete;
  VmmProcess& operator=(const VmmProcess&) = delete;

  pid_t pid() const noexcept { return pid_; }
  const std::filesystem::path& directory() const noexcept { return directory_; }
  // The exit status (128 + n for signal n); kills it after `limit` and returns -1.
  int wait(std::chrono::seconds limit = std::chrono::seconds(60));
  // A thread of that name exists, e.g. "vcpu0": the guest has been started.
  bool has_thread(const std::string& name) const;
  std::string standard_output() const;
  std::string standard_error() const;
  bool wait_until(const std::function<bool()>& condition, std::chrono::seconds limit = std::chrono::seconds(30)) const;

 private:
  std::filesystem::path directory_;
  pid_t pid_ = -1;
};

struct Finished {
  int status = -1;
  std::string out;
  std::string err;
  nlohmann::json json;  // of --stats=FILE; null when nothing was written
};

// Runs to the end, with --stats=FILE when `with_stats`.
Finished run_vmm(std::vector<std::string> arguments, bool with_stats = true);

// A counter of a vCPU: the number, or no value when it is null.
std::optional<std::uint64_t> counter(const nlohmann::json& document, std::size_t vcpu, const std::string& name);
std::optional<std::uint64_t> counter_sum(const nlohmann::json& document, const std::string& name);

bool kvm_is_here();
bool nested();  // inside the nested host
std::filesystem::path build_directory();

}  // namespace vmm::integration
