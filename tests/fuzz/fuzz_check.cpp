// SPDX-License-Identifier: Apache-2.0
// A baseline comes from anywhere: two documents are compared or refused. The input is both, parted by a NUL.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.hpp"
#include "experiment/check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace vmm::experiment;
  const std::span input(data, size);
  const auto middle = std::ranges::find(input, std::uint8_t{0});
  const auto baseline = nlohmann::ordered_json::parse(input.begin(), middle, nullptr, false);
  const auto current =
      middle == input.end() ? baseline : nlohmann::ordered_json::parse(middle + 1, input.end(), nullptr, false);
  if (baseline.is_discarded() || current.is_discarded()) return 0;
  try {
    const auto findings = check_results(baseline, current, {});
    (void)check_text(findings);
    (void)junit_xml(findings);
  } catch (const vmm::base::BadInput&) {
  }
  return 0;
}
