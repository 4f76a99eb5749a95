// SPDX-License-Identifier: Apache-2.0
#include "app/report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>

#include "app/result_file.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_depth.hpp"
#include "experiment/compare_report.hpp"
#include "experiment/html_report.hpp"

namespace vmm::app {
namespace {

constexpr std::size_t kFileLimitBytes = 256 << 20;
constexpr std::size_t kNestingMaximum = 64;

}  // namespace

nlohmann::ordered_json read_result(const char* command, const std::filesystem::path& path) {
  (void)base::open_input(command, path);
  const std::string text = base::read_text(path, kFileLimitBytes);
  if (base::nests_deeper(text, kNestingMaximum)) {
    throw base::BadInput(fmt::format("{}: '{}': it nests deeper than {}", command, path.string(), kNestingMaximum));
  }
  auto document = nlohmann::ordered_json::parse(text, nullptr, false);
  if (document.is_discarded()) throw base::BadInput(fmt::format("{}: '{}': it is not JSON", command, path.string()));
  return document;
}

int report(const ReportCommand& command) {
  std::error_code none;
  if (command.html && std::filesystem::equivalent(*command.html, command.file, none)) {
    throw base::BadInput(fmt::format("-o: '{}' is the result itself; another name keeps it", command.file.string()));
  }
  std::optional<base::AtomicFile> page;
  if (command.html) page.emplace("-o", *command.html);
  const nlohmann::ordered_json document = read_result("report", command.file);
  try {
    if (page) {
      page->commit(experiment::html_report(document));
    } else {
      base::write_result(experiment::compare_table(document));
    }
  } catch (const base::BadInput& error) {
    throw base::BadInput(fmt::format("report: '{}': {}", command.file.string(), error.what()));
  }
  return 0;
}

}  // namespace vmm::app
