// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace vmm::base {

// Exit status of the program: the contract with scripts and CI (docs/architecture.md, "Exit status").
enum class ExitStatus : int {
  kOk = 0,              // the guest finished and its workload succeeded
  kWorkloadFailed = 1,  // the workload (or payload) reported failure
  kBadInput = 2,        // bad usage or a bad input file
  kHostUnable = 3,      // this host (or this guest) lacks what was asked for
  kGuestCrashed = 4,    // triple fault, KVM internal error, panic, wedge
  kTimeout = 124,       // --timeout expired
};

// Base of every error that ends a run. The message is one line: what, which value, the limit, what would work.
class Error : public std::runtime_error {
 public:
  Error(ExitStatus status, const std::string& message) : std::runtime_error(message), status_(status) {}
  ExitStatus status() const noexcept { return status_; }

 private:
  ExitStatus status_;
};

// The user's option or file is at fault: status 2.
class BadInput : public Error {
 public:
  explicit BadInput(const std::string& message) : Error(ExitStatus::kBadInput, message) {}
};

// The host or the guest cannot do what was asked: status 3.
class HostUnable : public Error {
 public:
  explicit HostUnable(const std::string& message) : Error(ExitStatus::kHostUnable, message) {}
};

// A system call failed: carries the operation and errno. Status 3, since it is the host that refused.
class SystemError : public Error {
 public:
  SystemError(std::string_view operation, int error_number);
  int error_number() const noexcept { return error_number_; }

 private:
  int error_number_;
};

// Throws SystemError for `operation` with the current errno.
[[noreturn]] void throw_errno(std::string_view operation);

// "No such file or directory (ENOENT)" for an errno value.
std::string errno_text(int error_number);

}  // namespace vmm::base
