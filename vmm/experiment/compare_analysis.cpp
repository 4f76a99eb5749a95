// SPDX-License-Identifier: Apache-2.0
#include "experiment/compare_analysis.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <span>

#include "base/error.hpp"
#include "base/parse.hpp"
#include "experiment/comparison.hpp"

namespace vmm::experiment {
namespace {

using Json = nlohmann::ordered_json;
using base::BadInput;

constexpr std::size_t kTrialsMaximum = 100'000;
constexpr std::size_t kVcpusMaximum = 256;
constexpr std::size_t kTextMaximum = 200;
constexpr std::size_t kBucketsMaximum = 2000;
constexpr double kSecondsMinimum = 1e-9;
constexpr double kSecondsMaximum = 1e9;
constexpr double kSamplesBeyond = 10;  // a percentile with fewer is noise

constexpr std::array<MetricText, kMetrics> kMetricTexts{{
    {Metric::kSeconds, "seconds", "s", false, false},
    {Metric::kHltExits, "hlt_exits_per_op", "count", true, false},
    {Metric::kIpis, "ipis_per_op", "count", true, false},
    {Metric::kCpuOnUs, "cpu_on_us_per_op", "us", false, false},
    {Metric::kGuestUs, "guest_us_per_op", "us", false, false},
    {Metric::kExitHandlingUs, "exit_handling_us_per_op", "us", false, false},
    {Metric::kRunDelayUs, "run_delay_us_per_op", "us", false, false},
    {Metric::kBlockedUs, "blocked_us_per_op", "us", false, false},
    {Metric::kTimeAccounted, "time_accounted", "1", false, false},
    {Metric::kSpinHitsRemote, "spin_hits_remote_per_op", "count", true, true},
    {Metric::kSpinHitsLocal, "spin_hits_local_per_op", "count", true, true},
    {Metric::kSpinMisses, "spin_misses_per_op", "count", true, false},
    {Metric::kSpinUs, "spin_us_per_op", "us", false, false},
    {Metric::kPollWonUs, "halt_poll_won_us_per_op", "us", false, true},
    {Metric::kPollLostUs, "halt_poll_lost_us_per_op", "us", false, false},
    {Metric::kLatencyP50Us, "latency_p50_us", "us", false, false},
    {Metric::kLatencyP99Us, "latency_p99_us", "us", false, false},
    {Metric::kLatencyP999Us, "latency_p999_us", "us", false, false},
    {Metric::kNeighbourPerSecond, "neighbour_units_per_s", "1/s", false, true},
    {Metric::kEnergyMj, "energy_mj_per_op", "mJ", false, false},
}};

struct Counters {
  std::vector<std::string_view> names;  // added up
  double scale;
};

// The counters behind a metric for each operation; none for the others.
Counters counters_of(Metric metric, bool by_guest) {
  constexpr double kUsPerNs = 1e-3;
  switch (metric) {
    case Metric::kHltExits:
      return {{"hlt_exits"}, 1};
    case Metric::kIpis:
      if (by_guest) return {{"guest_ipi_call_function", "guest_ipi_reschedule"}, 1};
      return {{"ipi_injected_call_function", "ipi_injected_reschedule"}, 1};
    case Metric::kCpuOnUs:
      return {{"cpu_on_ns"}, kUsPerNs};
    case Metric::kGuestUs:
      return {{"cpu_guest_ns"}, kUsPerNs};
    case Metric::kBlockedUs:
      return {{"blocked_ns"}, kUsPerNs};
    case Metric::kRunDelayUs:
      return {{"run_delay_ns"}, kUsPerNs};
    case Metric::kSpinHitsRemote:
      return {{"guest_spin_hits_remote"}, 1};
    case Metric::kSpinHitsLocal:
      return {{"guest_spin_hits_local"}, 1};
    case Metric::kSpinMisses:
      return {{"guest_spin_misses"}, 1};
    case Metric::kSpinUs:
      return {{"guest_spin_ns"}, kUsPerNs};
    case Metric::kPollWonUs:
      return {{"halt_poll_won_ns"}, kUsPerNs};
    case Metric::kPollLostUs:
      return {{"halt_poll_lost_ns"}, kUsPerNs};
    default:
      return {{}, 1};
  }
}

std::optional<double> number_in(const Json& object, std::string_view key) {
  if (!object.is_object()) return std::nullopt;
  const auto field = object.find(key);
  if (field == object.end() || !field->is_number()) return std::nullopt;
  const double value = field->get<double>();
  return std::isfinite(value) && value >= 0 ? std::optional(value) : std::nullopt;
}

// The sum of some counters of one vCPU; nothing as soon as one is not known.
std::optional<double> counters_in(const Json& vcpu, std::span<const std::string_view> names) {
  const Json& counters = vcpu.at("counters");
  double sum = 0;
  for (const std::string_view name : names) {
    const auto entry = counters.find(name);
    if (entry == counters.end()) return std::nullopt;
    const auto value = number_in(*entry, "value");
    if (!value) return std::nullopt;
    sum += *value;
  }
  return sum;
}

// The same over all vCPUs; nothing without any.
std::optional<double> sum_over(const Json& vcpus, std::span<const std::string_view> names) {
  if (vcpus.empty()) return std::nullopt;
  double sum = 0;
  for (const Json& vcpu : vcpus) {
    const auto value = counters_in(vcpu, names);
    if (!value) return std::nullopt;
    sum += *value;
  }
  return sum;
}

std::string text_in(const Json& object, std::string_view key) {
  const auto field = object.find(key);
  if (field == object.end() || field->is_null()) return {};
  std::string text = field->get<std::string>();
  if (text.size() > kTextMaximum) text.resize(kTextMaximum);
  // What a terminal or a page would take for a command has no place in a name.
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

bool is_valid(const Json& trial) {
  return trial.value("valid", true) && number_in(trial, "seconds").value_or(0) > 0;
}

std::optional<double> median_of(const std::vector<const Json*>& trials, Metric metric, bool by_guest) {
  std::vector<double> values;
  for (const Json* trial : trials) {
    const auto value = metric_of(*trial, metric, by_guest);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  if (values.empty()) return std::nullopt;
  return stats::median(values);
}

struct ArmTrials {
  std::vector<const Json*> valid;
  std::map<std::uint64_t, const Json*> by_block;
};

// Ratios by block, where both arms have a value above 0.
std::optional<stats::Ratio> ratio_of(const ArmTrials& arm, const ArmTrials& reference, Metric metric, bool by_guest) {
  std::vector<double> ours, theirs;
  for (const auto& [block, trial] : arm.by_block) {
    const auto other = reference.by_block.find(block);
    if (other == reference.by_block.end()) continue;
    const auto a = metric_of(*trial, metric, by_guest);
    const auto b = metric_of(*other->second, metric, by_guest);
    if (!a || !b || *a <= 0 || *b <= 0) continue;
    ours.push_back(*a);
    theirs.push_back(*b);
  }
  return stats::paired_ratio(ours, theirs);
}

std::vector<VcpuColumns> vcpu_columns(const std::vector<const Json*>& trials, bool by_guest) {
  std::size_t vcpus = 0;
  for (const Json* trial : trials) vcpus = std::max(vcpus, trial->at("vcpus").size());
  std::vector<VcpuColumns> columns(std::min(vcpus, kVcpusMaximum));
  for (std::size_t id = 0; id < columns.size(); ++id) {
    const auto median_over_trials = [&](Metric metric) -> std::optional<double> {
      std::vector<double> values;
      for (const Json* trial : trials) {
        if (id >= trial->at("vcpus").size()) return std::nullopt;
        const auto value = counters_in(trial->at("vcpus").at(id), counters_of(metric, by_guest).names);
        if (!value) return std::nullopt;
        values.push_back(*value);
      }
      return stats::median(values);
    };
    columns[id] = {median_over_trials(Metric::kHltExits), median_over_trials(Metric::kIpis)};
  }
  return columns;
}

PooledLatency pooled(const Buckets& buckets) {
  double total = 0;
  for (const auto& [end_us, count] : buckets) total += count;
  const auto percentile = [&](double share) -> std::optional<double> {
    const double rank = std::ceil(total * share);
    double below = 0;
    for (const auto& [end_us, count] : buckets) {
      below += count;
      if (below >= rank) return total - rank >= kSamplesBeyond ? std::optional(end_us) : std::nullopt;
    }
    return std::nullopt;
  };
  constexpr double kMost = 1e18;  // of a hostile file
  return {static_cast<std::uint64_t>(std::min(total, kMost)), percentile(0.5), percentile(0.99), percentile(0.999)};
}

std::optional<TimeSpent> time_spent_in(const Json& document) {
  const auto field = document.find("time_spent");
  if (field == document.end()) return std::nullopt;
  const auto wall = number_in(*field, "wall_s");
  const auto boots = number_in(*field, "boots_s");
  const auto crashes = number_in(*field, "crashes_s");
  const auto workload = number_in(*field, "workload_s");
  if (!wall || !boots || !crashes || !workload || *workload <= 0 || *wall > kSecondsMaximum) return std::nullopt;
  return TimeSpent{*wall, *workload, *boots, *crashes, (*wall - *boots - *crashes - *workload) / *workload};
}

ArmAnalysis describe_arm(const Json& arm) {
  ArmAnalysis result;
  result.name = text_in(arm, "name");
  if (result.name.empty()) throw BadInput("an arm without a name");
  result.shown = result.name;
  result.host = arm.value("host", result.name == "host");
  result.null_of = text_in(arm, "null_of");
  if (const std::string reason = text_in(arm, "left_out"); !reason.empty()) result.left_out = reason;
  if (const std::string note = text_in(arm, "note"); !note.empty()) result.note = note;
  if (const auto found = number_in(arm, "found_ns"); found && *found < 1e12) {
    result.shown += ": " + base::format_duration_ns(static_cast<std::uint64_t>(*found));
  }
  return result;
}

void warn(Analysis& analysis) {
  for (const ArmAnalysis& arm : analysis.arms) {
    if (!arm.null_of.empty() && (arm.verdict == stats::Verdict::kBetter || arm.verdict == stats::Verdict::kWorse)) {
      analysis.warnings.push_back(
          fmt::format("the null control differs: '{}', the same as '{}', came out {}; the machine was disturbed or the "
                      "trials are not independent, and differences of this size mean nothing",
                      arm.name, arm.null_of, stats::name_of(arm.verdict)));
    }
  }
  for (const ArmAnalysis& arm : analysis.arms) {
    if (arm.left_out) analysis.warnings.push_back(fmt::format("without '{}': {}", arm.name, *arm.left_out));
    if (arm.note) analysis.warnings.push_back(fmt::format("'{}': {}", arm.name, *arm.note));
    if (!arm.invalid.empty()) {
      analysis.warnings.push_back(fmt::format("{} of {} trials of '{}' are invalid and not counted: {}",
                                              arm.invalid.size(), arm.invalid.size() + arm.valid, arm.name,
                                              arm.invalid.front()));
    }
  }
  if (analysis.partial) analysis.warnings.emplace_back("partial: the comparison ended early; --resume goes on with it");
  if (analysis.restarts > 0) {
    analysis.warnings.push_back(
        fmt::format("guests crashed: {}; each was started again and the trial it was in repeated", analysis.restarts));
  }
}

Analysis analyse_checked(const Json& document) {
  if (!document.is_object() || document.value("schema", std::string()) != kCompareSchema) {
    throw BadInput(fmt::format("not a result of `vmm compare` (schema {})", kCompareSchema));
  }
  Analysis analysis;
  const Json& config = document.at("config");
  analysis.workload = text_in(config.at("workload"), "name");
  analysis.baseline = text_in(config, "baseline");
  analysis.seed = document.value("seed", std::uint64_t{0});
  analysis.partial = document.value("partial", false);
  analysis.time_spent = time_spent_in(document);
  if (const auto restarts = document.find("guest_restarts"); restarts != document.end()) {
    analysis.restarts = restarts->size();
  }
  const Json& arms = document.at("arms");
  const Json& trials = document.at("trials");
  if (!arms.is_array() || arms.empty()) throw BadInput("no arms");
  if (arms.size() > kArmsMaximum) throw BadInput(fmt::format("more than {} arms", kArmsMaximum));
  if (!trials.is_array() || trials.size() > kTrialsMaximum) {
    throw BadInput(fmt::format("'trials' is no list of at most {}", kTrialsMaximum));
  }

  std::map<std::string, ArmTrials, std::less<>> sorted;
  for (const Json& arm : arms) {
    analysis.arms.push_back(describe_arm(arm));
    if (!sorted.try_emplace(analysis.arms.back().name).second) {
      throw BadInput(fmt::format("arm '{}' is there twice", analysis.arms.back().name));
    }
  }
  for (const Json& trial : trials) {
    const std::string name = text_in(trial, "arm");
    const auto arm = std::ranges::find(analysis.arms, name, &ArmAnalysis::name);
    if (arm == analysis.arms.end()) throw BadInput(fmt::format("a trial of '{}', which is no arm", name));
    if (!trial.at("vcpus").is_array()) throw BadInput("a trial's 'vcpus' is no list");
    if (!trial.at("seconds").is_null() && !trial.at("seconds").is_number()) {
      throw BadInput("a trial's 'seconds' is no number");
    }
    if (const auto seconds = number_in(trial, "seconds").value_or(1);
        seconds != 0 && (seconds < kSecondsMinimum || seconds > kSecondsMaximum)) {
      throw BadInput(fmt::format("a trial of {} s; {} to {} s make sense", seconds, kSecondsMinimum, kSecondsMaximum));
    }
    if (!is_valid(trial)) {
      const auto because = trial.find("invalid_because");
      const bool said =
          because != trial.end() && because->is_array() && !because->empty() && because->front().is_string();
      arm->invalid.push_back(said ? because->front().get<std::string>().substr(0, kTextMaximum) : "no reason given");
      continue;
    }
    ArmTrials& of_arm = sorted.find(name)->second;
    of_arm.valid.push_back(&trial);
    if (const auto block = trial.find("block"); block != trial.end() && block->is_number_unsigned()) {
      of_arm.by_block[block->get<std::uint64_t>()] = &trial;
    }
  }

  // One source of IPIs for all arms: the tracepoints, or the guest's own count as soon as one trial lacks them.
  for (const ArmAnalysis& arm : analysis.arms) {
    if (arm.host) continue;
    for (const Json* trial : sorted.find(arm.name)->second.valid) {
      for (const Json& vcpu : trial->at("vcpus")) {
        if (!counters_in(vcpu, counters_of(Metric::kIpis, false).names)) analysis.ipis_by_guest = true;
      }
    }
  }
  const auto host = std::ranges::find(analysis.arms, true, &ArmAnalysis::host);
  const auto baseline = sorted.find(analysis.baseline);
  analysis.blocks = kTrialsMaximum;
  for (ArmAnalysis& arm : analysis.arms) {
    const ArmTrials& of_arm = sorted.find(arm.name)->second;
    arm.valid = of_arm.valid.size();
    if (!arm.left_out) analysis.blocks = std::min(analysis.blocks, arm.valid);
    for (const Json* trial : of_arm.valid) arm.seconds.push_back(*number_in(*trial, "seconds"));
    if (!arm.seconds.empty()) {
      const auto [least, most] = std::ranges::minmax(arm.seconds);
      arm.least_s = least;
      arm.most_s = most;
    }
    arm.seconds_interval = stats::median_interval(arm.seconds);
    for (const MetricText& text : kMetricTexts) {
      const auto index = static_cast<std::size_t>(text.metric);
      arm.medians.at(index) = median_of(of_arm.valid, text.metric, analysis.ipis_by_guest);
      if (baseline != sorted.end()) {
        arm.metric_to_baseline.at(index) = ratio_of(of_arm, baseline->second, text.metric, analysis.ipis_by_guest);
      }
    }
    if (host != analysis.arms.end() && !arm.host) {
      arm.to_host = ratio_of(of_arm, sorted.find(host->name)->second, Metric::kSeconds, false);
    }
    if (arm.name != analysis.baseline && !arm.host) {
      arm.to_baseline = arm.metric_to_baseline.at(static_cast<std::size_t>(Metric::kSeconds));
      if (arm.to_baseline) arm.verdict = stats::judge(arm.to_baseline->interval);
    }
    arm.vcpus = vcpu_columns(of_arm.valid, analysis.ipis_by_guest);
    arm.latency = pooled(latency_buckets(document, arm.name));
  }
  if (analysis.blocks == kTrialsMaximum) analysis.blocks = 0;
  warn(analysis);
  return analysis;
}

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json interval_json(const std::optional<stats::Interval>& interval) {
  return interval ? Json::array({interval->low, interval->high}) : Json(nullptr);
}

Json ratio_json(const std::optional<stats::Ratio>& ratio) {
  if (!ratio) return nullptr;
  return {{"median", ratio->median}, {"interval_95", interval_json(ratio->interval)}, {"blocks", ratio->blocks}};
}

}  // namespace

const std::array<MetricText, kMetrics>& metric_texts() noexcept {
  return kMetricTexts;
}

Buckets latency_buckets(const Json& document, const std::string& arm) {
  Buckets buckets;
  for (const Json& trial : document.at("trials")) {
    if (text_in(trial, "arm") != arm || !trial.value("valid", true)) continue;
    const Json list = trial.value(Json::json_pointer("/workload/latency_us/buckets_below_ns"), Json());
    if (!list.is_array() || list.size() > kBucketsMaximum) continue;
    for (const Json& bucket : list) {
      if (!bucket.is_array() || bucket.size() != 2 || !bucket[0].is_number_unsigned() ||
          !bucket[1].is_number_unsigned()) {
        continue;
      }
      buckets[bucket[0].get<double>() / 1e3] += bucket[1].get<double>();
    }
  }
  return buckets;
}

std::optional<double> metric_of(const Json& trial, Metric metric, bool by_guest) {
  switch (metric) {
    case Metric::kSeconds:
      return number_in(trial, "seconds");
    case Metric::kLatencyP50Us:
    case Metric::kLatencyP99Us:
    case Metric::kLatencyP999Us: {
      const auto workload = trial.find("workload");
      if (workload == trial.end() || !workload->is_object()) return std::nullopt;
      const auto latency = workload->find("latency_us");
      if (latency == workload->end()) return std::nullopt;
      return number_in(*latency, metric == Metric::kLatencyP50Us   ? "p50"
                                 : metric == Metric::kLatencyP99Us ? "p99"
                                                                   : "p999");
    }
    case Metric::kNeighbourPerSecond: {
      const auto neighbour = trial.find("neighbour");
      if (neighbour == trial.end()) return std::nullopt;
      const auto units = number_in(*neighbour, "operations");
      const auto seconds = number_in(*neighbour, "seconds");
      if (!units || !seconds || *seconds <= 0) return std::nullopt;
      return *units / *seconds;
    }
    case Metric::kExitHandlingUs: {
      const auto on = metric_of(trial, Metric::kCpuOnUs, by_guest);
      const auto guest = metric_of(trial, Metric::kGuestUs, by_guest);
      const auto won = metric_of(trial, Metric::kPollWonUs, by_guest);
      const auto lost = metric_of(trial, Metric::kPollLostUs, by_guest);
      if (!on || !guest || !won || !lost) return std::nullopt;
      // Clock ticks are samples: where nearly all the time is the guest's they can say a little too much.
      const double rest = *on - *guest - *won - *lost;
      return rest >= 0 ? std::optional(rest) : std::nullopt;
    }
    case Metric::kTimeAccounted: {
      constexpr std::array<std::string_view, 3> kAll{"cpu_on_ns", "run_delay_ns", "blocked_ns"};
      const auto accounted = sum_over(trial.at("vcpus"), kAll);
      const auto wall_ns = number_in(trial, "wall_ns");
      if (!accounted || !wall_ns || *wall_ns <= 0) return std::nullopt;
      return *accounted / (*wall_ns * static_cast<double>(trial.at("vcpus").size()));
    }
    case Metric::kEnergyMj: {
      constexpr double kMjPerUj = 1e-3;
      const auto energy = trial.find("energy");
      const auto operations = number_in(trial, "operations");
      if (energy == trial.end() || !operations || *operations <= 0) return std::nullopt;
      const auto uj = number_in(*energy, "value");
      return uj ? std::optional(*uj * kMjPerUj / *operations) : std::nullopt;
    }
    default:
      break;
  }
  const Counters counters = counters_of(metric, by_guest);
  const auto operations = number_in(trial, "operations");
  const auto sum = sum_over(trial.at("vcpus"), counters.names);
  if (!sum || !operations || *operations <= 0) return std::nullopt;
  return *sum * counters.scale / *operations;
}

Analysis analyse(const Json& document) {
  try {
    return analyse_checked(document);
  } catch (const nlohmann::json::exception& error) {
    throw BadInput(fmt::format("a damaged result of `vmm compare`: {}", error.what()));
  }
}

Json to_json(const Analysis& analysis) {
  Json arms = Json::array();
  for (const ArmAnalysis& arm : analysis.arms) {
    Json metrics = Json::object();
    for (const MetricText& text : kMetricTexts) {
      const auto index = static_cast<std::size_t>(text.metric);
      metrics[text.name] = {{"median", optional_json(arm.medians.at(index))},
                            {"unit", text.unit},
                            {"to_baseline", ratio_json(arm.metric_to_baseline.at(index))}};
    }
    arms.push_back({{"name", arm.name},
                    {"valid_trials", arm.valid},
                    {"invalid_trials", arm.invalid.size()},
                    {"seconds_interval_95", interval_json(arm.seconds_interval)},
                    {"time_to_host", ratio_json(arm.to_host)},
                    {"time_to_baseline", ratio_json(arm.to_baseline)},
                    {"latency_pooled_us",
                     {{"samples", arm.latency.samples},
                      {"p50_below", optional_json(arm.latency.p50_us)},
                      {"p99_below", optional_json(arm.latency.p99_us)},
                      {"p999_below", optional_json(arm.latency.p999_us)}}},
                    {"verdict", arm.to_baseline ? Json(stats::name_of(arm.verdict)) : Json(nullptr)},
                    {"metrics", std::move(metrics)}});
  }
  return {{"baseline", analysis.baseline},
          {"blocks", analysis.blocks},
          {"warnings", analysis.warnings},
          {"arms", std::move(arms)}};
}

}  // namespace vmm::experiment
