// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>

namespace vmm::base {

std::string errno_text(int error_number) {
  const char* name = strerrorname_np(error_number);
  const char* description = strerrordesc_np(error_number);
  return fmt::format("{} ({})", description != nullptr ? description : "unknown error",
                     name != nullptr ? std::string(name) : std::to_string(error_number));
}

SystemError::SystemError(std::string_view operation, int error_number)
    : Error(ExitStatus::kHostUnable, fmt::format("{}: {}", operation, errno_text(error_number))),
      error_number_(error_number) {}

void throw_errno(std::string_view operation) {
  throw SystemError(operation, errno);
}

}  // namespace vmm::base
