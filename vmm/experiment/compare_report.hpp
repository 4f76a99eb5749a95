// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "experiment/compare_analysis.hpp"

namespace vmm::experiment {

// The terminal's view of a result document, at most 100 columns for two vCPUs. First in the shape of seed 1: time and
// percent of the host's speed, then HLT exits and IPIs of each vCPU. Then every arm against the baseline: ratio of
// times with its interval, verdict, and for each operation what it cost. What is unknown is "-". Pure. Throws
// base::BadInput for a document of another form.
std::string compare_table(const nlohmann::ordered_json& document);

// A line for each trial, in the order they ran; the columns are those of metric_texts(). RFC 4180. Throws as above.
std::string compare_csv(const nlohmann::ordered_json& document);

}  // namespace vmm::experiment
