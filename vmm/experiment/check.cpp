// SPDX-License-Identifier: Apache-2.0
#include "experiment/check.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "base/error.hpp"
#include "experiment/markup.hpp"

namespace vmm::experiment {
namespace {

using Json = nlohmann::ordered_json;
using base::BadInput;
using Verdict = CheckFinding::Verdict;

constexpr double kDefaultLimit = 0.05;
constexpr double kLimitMaximumPercent = 1000;

// The metric in every valid trial of an arm; nothing as soon as one lacks it.
std::optional<std::vector<double>> values_of(const Json& document, const std::string& arm, Metric metric,
                                             bool by_guest) {
  std::vector<double> values;
  for (const Json& trial : document.at("trials")) {
    if (trial.at("arm") != arm || !trial.value("valid", true)) continue;
    const auto value = metric_of(trial, metric, by_guest);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

void judge(CheckFinding& finding, std::vector<double> before, std::vector<double> after) {
  finding.baseline = stats::median(before);
  finding.current = stats::median(after);
  const double floor = finding.metric.counter ? kCheckFloor : 0;
  for (double& value : before) value += floor;
  for (double& value : after) value += floor;
  const auto positive = [](const std::vector<double>& values) {
    return std::ranges::all_of(values, [](double v) { return v > 0; });
  };
  if (!positive(before) || !positive(after)) {
    finding.reason = "a value of 0 has no ratio";
    return;
  }
  finding.ratio = stats::unpaired_ratio(after, before);
  if (!finding.ratio || !finding.ratio->interval) {
    finding.reason =
        fmt::format("{} and {} trials are too few for an interval; 4 and 4 have one", before.size(), after.size());
    return;
  }
  const stats::Interval interval = *finding.ratio->interval;
  finding.moved = interval.low > 1 || interval.high < 1;
  const bool worse =
      finding.metric.more_is_better ? interval.high < 1 / (1 + finding.limit) : interval.low > 1 + finding.limit;
  finding.verdict = worse ? Verdict::kWorse : Verdict::kWithin;
}

std::vector<CheckFinding> check_analysed(const Json& baseline, const Json& current,
                                         const std::vector<CheckLimit>& limits, bool asked) {
  const auto analyse_named = [](const Json& document, const char* which) {
    try {
      return analyse(document);
    } catch (const BadInput& error) {
      throw BadInput(fmt::format("{}: {}", which, error.what()));
    }
  };
  const Analysis before = analyse_named(baseline, "the baseline");
  const Analysis after = analyse_named(current, "the new result");
  if (before.workload != after.workload) {
    throw BadInput(fmt::format("the baseline's workload is '{}', the new one's '{}'", before.workload, after.workload));
  }
  const bool by_guest = before.ipis_by_guest || after.ipis_by_guest;
  std::vector<CheckFinding> findings;
  for (const ArmAnalysis& arm : before.arms) {
    if (arm.host || arm.left_out) continue;
    const auto same = std::ranges::find(after.arms, arm.name, &ArmAnalysis::name);
    if (same == after.arms.end()) throw BadInput(fmt::format("the new result has no arm '{}'", arm.name));
    for (const CheckLimit& limit : limits) {
      CheckFinding finding;
      finding.arm = arm.name;
      finding.metric = metric_texts().at(static_cast<std::size_t>(limit.metric));
      finding.limit = limit.share;
      finding.required = asked || same->left_out || (arm.valid > 0 && same->valid == 0);
      const auto old_values = values_of(baseline, arm.name, limit.metric, by_guest);
      const auto new_values = values_of(current, arm.name, limit.metric, by_guest);
      if (!old_values || old_values->empty()) {
        finding.reason = "the baseline does not have it";
      } else if (!new_values || new_values->empty()) {
        finding.reason =
            same->left_out ? "the new result left it out: " + *same->left_out : "the new result does not have it";
      } else {
        judge(finding, *old_values, *new_values);
      }
      findings.push_back(std::move(finding));
    }
  }
  if (std::ranges::all_of(findings, [](const CheckFinding& f) { return f.verdict == Verdict::kUnknown; })) {
    throw BadInput(findings.empty() ? std::string("the baseline has no guest")
                                    : fmt::format("nothing can be compared: {}", findings.front().reason));
  }
  return findings;
}

const char* word(Verdict verdict) {
  switch (verdict) {
    case Verdict::kWithin:
      return "ok";
    case Verdict::kWorse:
      return "WORSE";
    case Verdict::kUnknown:
      break;
  }
  return "unknown";
}

std::string sentence(const CheckFinding& finding) {
  if (finding.verdict == Verdict::kUnknown) return finding.reason;
  const stats::Interval interval = *finding.ratio->interval;
  return fmt::format("{:.4g} -> {:.4g} ({:+.1f} %, 95 %: {:+.1f} to {:+.1f}; {}; limit {}{:.0f} %)", *finding.baseline,
                     *finding.current, 100 * (finding.ratio->median - 1), 100 * (interval.low - 1),
                     100 * (interval.high - 1), finding.moved ? "moved" : "within noise",
                     finding.metric.more_is_better ? "-" : "+", 100 * finding.limit);
}

}  // namespace

CheckLimit parse_check_limit(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    throw BadInput(fmt::format("--max: '{}' {}; hlt_exits_per_op=+5% works", text, why));
  };
  const std::size_t equals = text.find('=');
  if (equals == text.npos) refuse("is not NAME=+P%");
  const auto metric = std::ranges::find(metric_texts(), text.substr(0, equals), &MetricText::name);
  if (metric == metric_texts().end()) {
    std::string names;
    for (const MetricText& known : metric_texts()) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
    throw BadInput(fmt::format("--max: '{}' is none of {}", text.substr(0, equals), names));
  }
  std::string_view percent = text.substr(equals + 1);
  if (percent.starts_with('+')) percent.remove_prefix(1);
  if (!percent.ends_with('%')) refuse("has no %");
  percent.remove_suffix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(percent.data(), percent.data() + percent.size(), value);
  if (error != std::errc() || end != percent.data() + percent.size() || !(value >= 0) || value > kLimitMaximumPercent) {
    refuse("is no percentage from 0 to 1000");
  }
  return {metric->metric, value / 100};
}

std::vector<CheckFinding> check_results(const Json& baseline, const Json& current, std::vector<CheckLimit> limits) {
  const bool asked = !limits.empty();
  if (!asked) {
    for (const MetricText& text : metric_texts()) {
      // More hits are the gain of spinning, no cost: they are checked when asked for.
      if (text.counter && !text.more_is_better) limits.push_back({text.metric, kDefaultLimit});
    }
  }
  try {
    return check_analysed(baseline, current, limits, asked);
  } catch (const BadInput& error) {
    throw BadInput(fmt::format("check: {}", error.what()));
  } catch (const nlohmann::json::exception& error) {
    throw BadInput(fmt::format("check: a damaged result of `vmm compare`: {}", error.what()));
  }
}

bool all_within_limits(const std::vector<CheckFinding>& findings) noexcept {
  return std::ranges::none_of(findings, [](const CheckFinding& f) {
    return f.verdict == Verdict::kWorse || (f.required && f.verdict == Verdict::kUnknown);
  });
}

std::string check_text(const std::vector<CheckFinding>& findings) {
  std::string out;
  std::size_t worse = 0;
  std::size_t unknown = 0;
  for (const CheckFinding& finding : findings) {
    worse += finding.verdict == Verdict::kWorse;
    unknown += finding.verdict == Verdict::kUnknown;
    out += fmt::format("{:<8}{}, {}: {}\n", word(finding.verdict), finding.arm, finding.metric.name, sentence(finding));
  }
  return out + fmt::format("{} numbers compared: {} worse than allowed, {} unknown\n", findings.size(), worse, unknown);
}

std::string junit_xml(const std::vector<CheckFinding>& findings) {
  std::size_t worse = 0;
  std::size_t unknown = 0;
  std::string cases;
  for (const CheckFinding& finding : findings) {
    const bool lost = finding.verdict == Verdict::kUnknown && finding.required;
    worse += finding.verdict == Verdict::kWorse || lost;
    unknown += finding.verdict == Verdict::kUnknown && !lost;
    const std::string text = escape_markup(sentence(finding));
    cases +=
        fmt::format("    <testcase classname=\"{}\" name=\"{}\">", escape_markup(finding.arm), finding.metric.name);
    if (finding.verdict == Verdict::kWorse) cases += fmt::format("<failure message=\"{}\"/>", text);
    if (finding.verdict == Verdict::kUnknown) {
      cases += fmt::format("<{} message=\"{}\"/>", finding.required ? "failure" : "skipped", text);
    }
    cases += "</testcase>\n";
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"vmm check\" tests=\"{}\" "
      "failures=\"{}\" skipped=\"{}\">\n{}  </testsuite>\n</testsuites>\n",
      findings.size(), worse, unknown, cases);
}

}  // namespace vmm::experiment
