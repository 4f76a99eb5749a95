// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vmm::experiment {

inline constexpr const char* kCompareSchema = "vmm.compare/1";

// The terminal table of a result document, in the shape of seed 1: time, percent of the host's speed, then HLT exits
// and IPIs of each vCPU; medians over an arm's trials. IPIs are those that KVM accepted for the vCPU (tracepoint), or
// the guest's own count, marked so, where one trial lacks the former. Pure. Throws base::BadInput for a document of
// another form; what is null in it is shown as "-".
std::string compare_table(const nlohmann::ordered_json& document);

// The middle value, or the mean of the two middle ones. `values` must not be empty. Pure.
double median(std::vector<double> values);

}  // namespace vmm::experiment
