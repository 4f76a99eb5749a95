// SPDX-License-Identifier: Apache-2.0
// Result files of `vmm compare` come from anywhere: any text is a table or a BadInput.
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "experiment/compare_report.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto document = nlohmann::ordered_json::parse(data, data + size, nullptr, false);
  if (document.is_discarded()) return 0;
  try {
    (void)vmm::experiment::compare_table(document);
    (void)vmm::experiment::compare_csv(document);
    (void)vmm::experiment::to_json(vmm::experiment::analyse(document));
  } catch (const vmm::base::BadInput&) {
  }
  return 0;
}
