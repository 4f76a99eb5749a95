// SPDX-License-Identifier: Apache-2.0
#include "experiment/compare_report.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <optional>
#include <string_view>

#include "base/error.hpp"

namespace vmm::experiment {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kVcpusShown = 8;
constexpr std::size_t kNameWidthMinimum = 24;
constexpr std::size_t kNameWidthMaximum = 44;

std::optional<double> median_of(const ArmAnalysis& arm, Metric metric) {
  return arm.medians.at(static_cast<std::size_t>(metric));
}

// A number of at most about four digits that matter.
std::string cell(std::optional<double> value) {
  if (!value) return "-";
  if (*value == 0) return "0";
  if (*value < 0.001) return "<0.001";
  return *value < 1     ? fmt::format("{:.3f}", *value)
         : *value < 100 ? fmt::format("{:.2f}", *value)
                        : fmt::format("{:.0f}", *value);
}

std::string whole(std::optional<double> value) {
  return value ? fmt::format("{:.0f}", *value) : std::string("-");
}

std::string spread(const ArmAnalysis& arm) {
  if (arm.seconds_interval) return fmt::format("{:.2f}..{:.2f}", arm.seconds_interval->low, arm.seconds_interval->high);
  if (arm.least_s) return fmt::format("{:.2f}..{:.2f}", *arm.least_s, *arm.most_s);
  return "-";
}

std::string seed_table(const Analysis& analysis, std::size_t width) {
  std::size_t vcpus = 0;
  for (const ArmAnalysis& arm : analysis.arms) vcpus = std::max(vcpus, arm.vcpus.size());
  vcpus = std::min(vcpus, kVcpusShown);
  const bool intervals =
      std::ranges::all_of(analysis.arms, [](const ArmAnalysis& arm) { return arm.seconds_interval || arm.left_out; });
  const char* mark = analysis.ipis_by_guest ? "g" : "";
  std::string out =
      fmt::format("{:<{}}{:>9}{:>15}{:>9}", "", width, "seconds", intervals ? "95 %" : "min..max", "of host");
  for (std::size_t id = 0; id < vcpus; ++id) {
    out += fmt::format("{:>8}{:>8}", fmt::format("HLT {}", id), fmt::format("IPI {}{}", id, mark));
  }
  out += '\n';
  const auto host = std::ranges::find(analysis.arms, true, &ArmAnalysis::host);
  for (const ArmAnalysis& arm : analysis.arms) {
    if (arm.left_out) continue;
    const auto seconds = median_of(arm, Metric::kSeconds);
    out += fmt::format("{:<{}}{:>9}{:>15}", arm.shown, width, seconds ? fmt::format("{:.3f}", *seconds) : "-",
                       spread(arm));
    // As in the seed's table: how much of the host's speed is left.
    const auto host_seconds = host == analysis.arms.end() ? std::nullopt : median_of(*host, Metric::kSeconds);
    out += fmt::format("{:>9}", host_seconds && seconds ? fmt::format("{:.1f}%", 100 * *host_seconds / *seconds) : "-");
    for (std::size_t id = 0; id < vcpus && !arm.host; ++id) {
      const VcpuColumns columns = id < arm.vcpus.size() ? arm.vcpus[id] : VcpuColumns{};
      out += fmt::format("{:>8}{:>8}", whole(columns.hlt_exits), whole(columns.ipis));
    }
    out += '\n';
  }
  return out;
}

std::string ratio_table(const Analysis& analysis, std::size_t width) {
  const bool neighbour = std::ranges::any_of(
      analysis.arms, [](const ArmAnalysis& arm) { return median_of(arm, Metric::kNeighbourPerSecond).has_value(); });
  std::string out = fmt::format("{:<{}}{:>7}{:>13}  {:<13}{:>7}{:>7}{:>8}{:>8}{:>9}", "against " + analysis.baseline,
                                width, "time", "95 %", "verdict", "HLT/op", "IPI/op", "p50 us", "p99 us", "p99.9 us");
  out += neighbour ? fmt::format("{:>13}\n", "neighbour/s") : "\n";
  for (const ArmAnalysis& arm : analysis.arms) {
    if (arm.host || arm.left_out) continue;
    const auto& ratio = arm.to_baseline;
    const bool base = arm.name == analysis.baseline;
    out += fmt::format(
        "{:<{}}{:>7}{:>13}  {:<13}{:>7}{:>7}{:>8}{:>8}{:>9}", arm.shown, width,
        base    ? "1"
        : ratio ? fmt::format("{:.3f}", ratio->median)
                : "-",
        ratio && ratio->interval ? fmt::format("{:.3f}..{:.3f}", ratio->interval->low, ratio->interval->high) : "-",
        base ? "(baseline)" : stats::name_of(arm.verdict), cell(median_of(arm, Metric::kHltExits)),
        cell(median_of(arm, Metric::kIpis)), whole(median_of(arm, Metric::kLatencyP50Us)),
        whole(median_of(arm, Metric::kLatencyP99Us)), whole(arm.latency.p999_us));
    out += neighbour ? fmt::format("{:>13}\n", whole(median_of(arm, Metric::kNeighbourPerSecond))) : "\n";
  }
  return out;
}

// Where an operation's time goes, and the host's energy where it counts it.
std::string cost_table(const Analysis& analysis, std::size_t width) {
  struct Column {
    Metric metric;
    const char* title;
  };
  constexpr std::array<Column, 7> kColumns{{{Metric::kCpuOnUs, "on CPU"},
                                            {Metric::kGuestUs, "guest"},
                                            {Metric::kPollWonUs, "poll won"},
                                            {Metric::kPollLostUs, "lost"},
                                            {Metric::kExitHandlingUs, "exits"},
                                            {Metric::kRunDelayUs, "delay"},
                                            {Metric::kBlockedUs, "blocked"}}};
  const bool energy = std::ranges::any_of(
      analysis.arms, [](const ArmAnalysis& arm) { return median_of(arm, Metric::kEnergyMj).has_value(); });
  std::string out = fmt::format("{:<{}}", "us an operation, all vCPUs", width);
  for (const Column& column : kColumns) out += fmt::format("{:>9}", column.title);
  out += fmt::format("{:>10}{}\n", "accounted", energy ? fmt::format("{:>8}", "mJ") : "");
  for (const ArmAnalysis& arm : analysis.arms) {
    if (arm.host || arm.left_out) continue;
    out += fmt::format("{:<{}}", arm.shown, width);
    for (const Column& column : kColumns) out += fmt::format("{:>9}", whole(median_of(arm, column.metric)));
    const auto accounted = median_of(arm, Metric::kTimeAccounted);
    out += fmt::format("{:>10}{}\n", accounted ? fmt::format("{:.1f}%", 100 * *accounted) : "-",
                       energy ? fmt::format("{:>8}", cell(median_of(arm, Metric::kEnergyMj))) : "");
  }
  return out;
}

std::string legend(const Analysis& analysis) {
  std::string out = fmt::format(
      "{}: medians over {} blocks of one trial an arm in random order (seed {}).\n"
      "95 %: the interval of the median.  of host: the host's time / this time.\n"
      "HLT n: HLT exits of vCPU n in a trial (KVM's halt_exits).\n"
      "IPI n: call-function and reschedule IPIs injected into vCPU n ({}).\n"
      "p50, p99: medians of the trials' percentiles; p99.9: of all trials together.\n"
      "on CPU = guest + host halt-poll won + lost + exits and all else. Accounted: on CPU, delay\n"
      "(runnable) and blocked, as a share of the vCPUs' wall time.\n"
      "{}",
      analysis.workload, analysis.blocks, analysis.seed,
      analysis.ipis_by_guest ? "g: the guest's own /proc/interrupts" : "tracepoint kvm_apic_accept_irq",
      analysis.baseline.empty()
          ? std::string()
          : fmt::format("time: this / {}, block by block. better, worse: its interval excludes 1;\n"
                        "equivalent: it lies inside 0.95 to 1.05.\n",
                        analysis.baseline));
  if (analysis.time_spent) {
    const TimeSpent& spent = *analysis.time_spent;
    out += fmt::format("Took {:.0f} s: workload {:.0f} s, boots {:.0f} s, {}the rest {:.1f} % of the workload.\n",
                       spent.wall_s, spent.workload_s, spent.boots_s,
                       spent.crashes_s > 0 ? fmt::format("crashed guests {:.0f} s, ", spent.crashes_s) : std::string(),
                       100 * spent.overhead);
  }
  if (analysis.blocks < stats::kIntervalMinimum) {
    out += fmt::format("Fewer than {} blocks allow no interval and no verdict: min..max is shown.\n",
                       stats::kIntervalMinimum);
  }
  return out;
}

std::string csv_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string compare_table(const Json& document) {
  const Analysis analysis = analyse(document);
  std::size_t width = kNameWidthMinimum;
  for (const ArmAnalysis& arm : analysis.arms) width = std::max(width, arm.shown.size() + 1);
  width = std::min(std::max(width, analysis.baseline.size() + sizeof("against ")), kNameWidthMaximum);
  std::string out;
  for (const std::string& warning : analysis.warnings) out += "! " + warning + "\n";
  if (!out.empty()) out += '\n';
  out += seed_table(analysis, width);
  if (!analysis.baseline.empty()) out += '\n' + ratio_table(analysis, width);
  out += '\n' + cost_table(analysis, width);
  return out + '\n' + legend(analysis);
}

std::string compare_csv(const Json& document) {
  const Analysis analysis = analyse(document);
  std::string out = "arm,block,position,valid";
  for (const MetricText& text : metric_texts()) out += fmt::format(",{}", text.name);
  out += "\r\n";
  try {
    for (const Json& trial : document.at("trials")) {
      const auto whole_number = [&](const char* key) {
        const auto field = trial.find(key);
        return field != trial.end() && field->is_number_unsigned() ? field->dump() : std::string();
      };
      out += fmt::format("{},{},{},{}", csv_text(trial.at("arm").get<std::string>()), whole_number("block"),
                         whole_number("position"), trial.value("valid", true));
      for (const MetricText& text : metric_texts()) {
        const auto value = metric_of(trial, text.metric, analysis.ipis_by_guest);
        out += value ? fmt::format(",{}", *value) : ",";
      }
      out += "\r\n";
    }
  } catch (const nlohmann::json::exception& error) {
    throw base::BadInput(fmt::format("a damaged result of `vmm compare`: {}", error.what()));
  }
  return out;
}

}  // namespace vmm::experiment
