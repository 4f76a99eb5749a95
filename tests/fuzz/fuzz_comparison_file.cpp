// SPDX-License-Identifier: Apache-2.0
// Comparisons come from TOML files of others: any text is a comparison or a BadInput.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "experiment/comparison.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace vmm::experiment;
  try {
    Comparison comparison = parse_comparison({reinterpret_cast<const char*>(data), size}, "fuzz.toml", {});
    complete(comparison);
    (void)to_json(comparison).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } catch (const vmm::base::BadInput&) {
  }
  return 0;
}
