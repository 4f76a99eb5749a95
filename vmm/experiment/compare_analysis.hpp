// SPDX-License-Identifier: Apache-2.0
// From a result document of `vmm compare` to what can be said of its arms. Pure; the document is hostile.
#pragma once

#include <array>
#include <cstdint>
#include <map>
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
  kIpis,            // call-function and reschedule, injected
  kCpuOnUs,         // the vCPU threads on a CPU of the host
  kGuestUs,         // of that inside the guest, by the host's clock ticks
  kExitHandlingUs,  // of that neither inside the guest nor polling: the rest
  kRunDelayUs,      // runnable, waiting for one
  kBlockedUs,
  kTimeAccounted,  // the share of the vCPUs' wall time that the three above (on, delay, blocked) add up to; near 1
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
  kEnergyMj,            // the host's packages, all of what ran on them
};
struct MetricText {
  Metric metric;
  const char* name;  // in JSON, CSV and `vmm check --max`: "hlt_exits_per_op"
  const char* unit;
  bool counter;  // counts events: comparable between machines where times are not
  bool more_is_better;
};
inline constexpr std::size_t kMetrics = 20;
const std::array<MetricText, kMetrics>& metric_texts() noexcept;

// Of all valid trials of an arm together, from the buckets that the workload reports: each percentile is the end of its
// bucket, at most an eighth above the value. Nothing where fewer than 10 samples lie beyond.
struct PooledLatency {
  std::uint64_t samples = 0;
  std::optional<double> p50_us, p99_us, p999_us;
};

// Where the time of a comparison went, s. `overhead`: what is neither workload, boot nor the loss to crashed guests, as
// a share of the workload.
struct TimeSpent {
  double wall_s = 0;
  double workload_s = 0;
  double boots_s = 0;
  double crashes_s = 0;
  double overhead = 0;
};

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
  PooledLatency latency;
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
  std::optional<TimeSpent> time_spent;
  std::vector<std::string> warnings;  // what a reader must know first: the null control differs, trials were invalid …
};

// Throws base::BadInput for a document of another form.
Analysis analyse(const nlohmann::ordered_json& document);

// The part of a result document that says what analyse() found.
nlohmann::ordered_json to_json(const Analysis& analysis);

// The latencies of all valid trials of an arm: end of the bucket in us -> samples.
using Buckets = std::map<double, double>;
Buckets latency_buckets(const nlohmann::ordered_json& document, const std::string& arm);

// A metric's value in one trial; nothing where it cannot be had. `by_guest`: IPIs by the guest's own count.
std::optional<double> metric_of(const nlohmann::ordered_json& trial, Metric metric, bool by_guest);

}  // namespace vmm::experiment
