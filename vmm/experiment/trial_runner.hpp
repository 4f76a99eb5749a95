// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiment/comparison.hpp"
#include "experiment/guest_run.hpp"

namespace vmm::experiment {

// The guest stopped and cannot go on, or the user wants an end: the comparison ends with what there is.
class ComparisonEnded : public std::exception {
 public:
  explicit ComparisonEnded(machine::Stop stop) : stop_(std::move(stop)) {}
  const machine::Stop& stop() const noexcept { return stop_; }
  const char* what() const noexcept override { return stop_.what.c_str(); }

 private:
  machine::Stop stop_;
};

// Runs single trials. One guest for each configuration that needs a boot of its own lives as long as this object; all
// are held but the one that runs, so that none disturbs another or the host's trial.
class TrialRunner {
 public:
  struct Config {
    ConsoleConfig console;
    std::uint64_t timeout_ms = 0;  // of each guest
    std::uint64_t watchdog_ms = 0;
    std::function<void(const std::string&)> progress;
  };

  // Looks at files and KVM, starts nothing. Throws base::Error for what can be known beforehand. `comparison` must
  // outlive it.
  TrialRunner(const Comparison& comparison, Config config);
  ~TrialRunner();
  TrialRunner(const TrialRunner&) = delete;
  TrialRunner& operator=(const TrialRunner&) = delete;

  // Boots every guest. An arm that this host cannot have and may lack is left out.
  void boot();
  const std::map<std::string, std::string>& left_out() const noexcept { return left_out_; }  // arm -> reason

  // Time that boots and crashed guests (with their boots, and the trials that were lost) have taken so far.
  std::chrono::nanoseconds boots() const noexcept { return boots_; }
  std::chrono::nanoseconds crashes() const noexcept { return crashes_; }

  // One trial (with `record_gaps` the guest's idle gaps are recorded, which costs it a little): "arm", "seconds" (null
  // when it failed), "operations", "valid", "invalid_because", "proof", "workload", "wall_ns", "vcpus", "neighbour",
  // "energy" (uJ, null with a reason). A guest that crashes meanwhile is booted again, said so, and the trial repeated.
  nlohmann::ordered_json run(const Arm& arm, bool record_gaps = false);

  // Another thread: ends the running guest or the host's workload, so that run() throws ComparisonEnded.
  void interrupt(machine::Stop stop);
  // Another thread: the exit statistics of the guest that runs, to standard error.
  void dump_statistics();

  // Powers all guests off.
  void finish();

  // What a reader must know of an arm on this host.
  std::map<std::string, std::string> notes() const;
  // For the result document.
  nlohmann::ordered_json guests_json() const;
  const std::vector<std::string>& restarts() const noexcept { return restarts_; }

 private:
  struct Guest;

  void boot(Guest& guest);
  nlohmann::ordered_json run_host(const Arm& arm);
  nlohmann::ordered_json run_guest(Guest& guest, const Arm& arm, bool record_gaps);
  void restart_or_end(Guest& guest);
  std::vector<unsigned> neighbour_cpus(const GuestConfig& guest) const;

  const Comparison& comparison_;
  Config config_;
  std::filesystem::path host_workload_;
  std::vector<std::unique_ptr<Guest>> guests_;
  std::map<std::string, std::string> left_out_;
  std::vector<std::string> restarts_;
  std::chrono::milliseconds longest_{0};  // trial of a guest so far
  std::chrono::nanoseconds boots_{0};
  std::chrono::nanoseconds crashes_{0};
  std::mutex mutex_;  // of what other threads see
  Guest* running_ = nullptr;
  std::optional<machine::Stop> interrupted_;
  std::atomic<bool> cancelled_{false};  // with interrupted_, for the host's workload
};

}  // namespace vmm::experiment
