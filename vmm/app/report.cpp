// SPDX-License-Identifier: Apache-2.0
#include "app/report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "experiment/compare_report.hpp"

namespace vmm::app {
namespace {

constexpr std::size_t kFileLimitBytes = 256 << 20;

}  // namespace

int report(const ReportCommand& command) {
  (void)base::open_input("report", command.file);
  const std::string text = base::read_text(command.file, kFileLimitBytes);
  const auto document = nlohmann::ordered_json::parse(text, nullptr, false);
  std::string table;
  try {
    if (document.is_discarded()) throw base::BadInput("it is not JSON");
    table = experiment::compare_table(document);
  } catch (const base::BadInput& error) {
    throw base::BadInput(fmt::format("report: '{}': {}", command.file.string(), error.what()));
  }
  base::write_result(table);
  return 0;
}

}  // namespace vmm::app
