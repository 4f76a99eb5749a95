// SPDX-License-Identifier: Apache-2.0
// Two results of `vmm compare`, an earlier and a new one: what got worse, and is it more than noise. For CI. Pure; both
// documents are hostile.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/compare_analysis.hpp"
#include "stats/inference.hpp"

namespace vmm::experiment {

// How much worse a metric may get in every arm: 0.05 is 5 %.
struct CheckLimit {
  Metric metric{};
  double share = 0;
};
// "hlt_exits_per_op=+5%". Throws BadInput: no such metric, or not a percentage from 0 to 1000.
CheckLimit parse_check_limit(std::string_view text);

struct CheckFinding {
  enum class Verdict {
    kWithin,   // its interval does not lie beyond the limit
    kWorse,    // it does
    kUnknown,  // it cannot be told: `reason`
  };
  std::string arm;
  MetricText metric{};
  double limit = 0;
  std::optional<double> baseline;  // medians
  std::optional<double> current;
  std::optional<stats::Ratio> ratio;  // current / baseline
  bool moved = false;                 // the interval excludes 1
  Verdict verdict = Verdict::kUnknown;
  std::string reason;
  bool required = false;  // it was asked for by name, or the new result lost the arm: unknown is then no pass
};

// Every arm of the baseline by every limit; without limits every counter for each operation by 5 %. A count has
// kCheckFloor added on both sides, so that a few events in thousands of operations are no regression of infinite size.
// Throws BadInput: a document of another form, other workloads, an arm that the new one lacks, nothing to compare.
inline constexpr double kCheckFloor = 0.001;
std::vector<CheckFinding> check_results(const nlohmann::ordered_json& baseline, const nlohmann::ordered_json& current,
                                        std::vector<CheckLimit> limits);

// Nothing is worse, and nothing that is required is unknown.
bool all_within_limits(const std::vector<CheckFinding>& findings) noexcept;
std::string check_text(const std::vector<CheckFinding>& findings);
std::string junit_xml(const std::vector<CheckFinding>& findings);

}  // namespace vmm::experiment
