// SPDX-License-Identifier: Apache-2.0
#include "app/report.hpp"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <unistd.h>

#include "base/error.hpp"

namespace vmm::app {
namespace {

TEST(Report, DoesNotWriteOverTheResultItself) {
  const std::filesystem::path result = testing::TempDir() + "result-" + std::to_string(::getpid()) + ".json";
  std::ofstream(result) << "{}";
  ReportCommand command;
  command.file = result;
  command.html = result;
  EXPECT_THROW((void)report(command), base::BadInput);
  std::ifstream file(result);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "{}");
  std::filesystem::remove(result);
}

}  // namespace
}  // namespace vmm::app
