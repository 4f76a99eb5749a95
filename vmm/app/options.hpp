// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "experiment/compare.hpp"
#include "experiment/run_config.hpp"

namespace vmm::app {

struct RunCommand {
  experiment::RunConfig config;
};
struct DoctorCommand {
  std::string device = "/dev/kvm";
  bool json = false;
};
struct ReportCommand {
  std::filesystem::path file;
};
// --help and --version: text for standard output, status 0.
struct ShowText {
  std::string text;
};
struct CompareCommand {
  experiment::CompareConfig config;
};
using Command = std::variant<RunCommand, CompareCommand, ReportCommand, DoctorCommand, ShowText>;

// argv into a command. Throws BadInput: one line that names the option, the value, the limit, what would work. Looks at
// no file and no host.
Command parse_command_line(const std::vector<std::string>& arguments);

}  // namespace vmm::app
