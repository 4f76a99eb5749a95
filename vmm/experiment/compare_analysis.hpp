// SPDX-License-Identifier: Apache-2.0
// From a result document of `vmm compare` to what can be said of its arms. Pure; the document is hostile.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stats/inference.hpp"

namespace vmm::experiment {

inline constexpr const char* kCompareSchema = "vmm.compare/1";

// Costs and gains of an arm for each operation of the workload: medians over its valid trials; nothing when it is
// unknown in one of them. Names are those of docs/metrics.md, "A comparison".
enum class Metric {
  kSeconds,  // of the whole trial, not for each operation
  kHltExits,
  kIpis,        // call-function and reschedule, injected
  kCpuOnUs,     // the vCPU threads on a CPU of the host
  kRunDelayUs,  // runnable, waiting for one
  kSpinHitsRemote,
  kSpinHitsLocal,
  kSpinMisses,
  kSpinUs,
  kPollWonUs,
  kPollLostUs,
  kLatencyP50Us,  // as the workload reports it
  kLatencyP99Us,
  kLatencyP999Us,
  kNeighbourPerSecond,  // units of the neighbour's work a second
};
struct MetricText {
  Metric metric;
  const char* name;  // in JSON, CSV and `vmm check --max`: "hlt_exits_per_op"
  const char* unit;
  bool counter;  // counts events: comparable between machines where times are not
  bool more_is_better;
};
inline constexpr std::size_t kMetrics = 15;
const std::array<MetricText, kMetrics>& metric_texts() noexcept;

struct VcpuColumns {
  std::optional<double> hlt_exits;  // medians of counts of a trial
  std::optional<double> ipis;
};

struct ArmAnalysis {
  std::string name;   // as in the document
  std::string shown;  // with the value that was found: "guest-spin=best: 5ms"
  bool host = false;
  std::string null_of;
  std::optional<std::string> left_out;  // the reason
  std::optional<std::string> note;      // what a reader must know of it on that host
  std::size_t valid = 0;
  std::vector<std::string> invalid;  // a line for each trial that proved not to be what it claims
  std::vector<double> seconds;       // of the valid trials, in the order of their blocks
  std::optional<double> least_s, most_s;
  std::optional<stats::Interval> seconds_interval;
  std::array<std::optional<double>, kMetrics> medians{};
  std::optional<stats::Ratio> to_host;      // time of this arm / time of the host, by block
  std::optional<stats::Ratio> to_baseline;  // time of this arm / time of the baseline, by block
  stats::Verdict verdict = stats::Verdict::kInconclusive;
  std::array<std::optional<stats::Ratio>, kMetrics> metric_to_baseline{};
  std::vector<VcpuColumns> vcpus;
};

struct Analysis {
  std::vector<ArmAnalysis> arms;
  std::string workload;
  std::string baseline;
  std::uint64_t seed = 0;
  std::size_t blocks = 0;  // complete ones
  bool partial = false;
  bool ipis_by_guest = false;  // the guest's own counts, since a trial lacks the tracepoint's
  std::size_t restarts = 0;
  std::vector<std::string> warnings;  // what a reader must know first: the null control differs, trials were invalid …
};

// Throws base::BadInput for a document of another form.
Analysis analyse(const nlohmann::ordered_json& document);

// The part of a result document that says what analyse() found.
nlohmann::ordered_json to_json(const Analysis& analysis);

// A metric's value in one trial; nothing where it cannot be had. `by_guest`: IPIs by the guest's own count.
std::optional<double> metric_of(const nlohmann::ordered_json& trial, Metric metric, bool by_guest);

}  // namespace vmm::experiment
