// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "experiment/check.hpp"
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
  std::optional<std::filesystem::path> html;  // -o
};
struct CheckCommand {
  std::filesystem::path baseline;
  std::filesystem::path current;
  std::vector<experiment::CheckLimit> limits;
  std::optional<std::filesystem::path> junit;
};
// --help and --version: text for standard output, status 0.
struct ShowText {
  std::string text;
};
struct CompareCommand {
  experiment::CompareConfig config;           // its comparison is complete, unless there is a file
  std::optional<std::filesystem::path> file;  // the comparison as TOML; what follows wins over it
  experiment::OptionText guest;
  std::optional<base::NamedParameters> workload;
  std::optional<unsigned> blocks;
};
using Command = std::variant<RunCommand, CompareCommand, ReportCommand, CheckCommand, DoctorCommand, ShowText>;

// Puts what the command line says of a comparison over it, and completes it. Throws BadInput.
void settle(CompareCommand& command);

// argv into a command. Throws BadInput: one line that names the option, the value, the limit, what would work. Looks at
// no file and no host.
Command parse_command_line(const std::vector<std::string>& arguments);

}  // namespace vmm::app
