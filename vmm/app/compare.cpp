// SPDX-License-Identifier: Apache-2.0
#include "app/compare.hpp"

#include <fmt/format.h>

#include "app/result_file.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "experiment/check.hpp"
#include "experiment/compare.hpp"

namespace vmm::app {
namespace {

constexpr std::size_t kComparisonLimitBytes = 1 << 20;

}  // namespace

int compare(CompareCommand command) {
  if (command.file) {
    (void)base::open_input("compare", *command.file);
    command.config.comparison = experiment::parse_comparison(base::read_text(*command.file, kComparisonLimitBytes),
                                                             command.file->string(), command.guest);
    try {
      settle(command);
    } catch (const base::BadInput& error) {
      throw base::BadInput(fmt::format("'{}': {}", command.file->string(), error.what()));
    }
  }
  return experiment::run_compare(command.config);
}

int check(const CheckCommand& command) {
  for (const std::filesystem::path& input : {command.baseline, command.current}) {
    std::error_code none;
    if (command.junit && std::filesystem::equivalent(*command.junit, input, none)) {
      throw base::BadInput(fmt::format("--junit: '{}' is a result itself; another name keeps it", input.string()));
    }
  }
  std::optional<base::AtomicFile> junit;
  if (command.junit) junit.emplace("--junit", *command.junit);
  const auto findings = experiment::check_results(read_result("check", command.baseline),
                                                  read_result("check", command.current), command.limits);
  if (junit) junit->commit(experiment::junit_xml(findings));
  base::write_result(experiment::check_text(findings));
  return experiment::all_within_limits(findings) ? 0 : 1;
}

}  // namespace vmm::app
