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

constexpr std::string_view kHost = "host";
constexpr std::size_t kArmsMaximum = 256;
constexpr std::size_t kVcpusShown = 8;
constexpr int kArmWidth = 28;

struct IpiColumn {
  std::array<std::string_view, 2> counters;
  std::string_view source;
};
constexpr IpiColumn kByTracepoint{{"ipi_injected_call_function", "ipi_injected_reschedule"},
                                  "tracepoint kvm_apic_accept_irq"};
constexpr IpiColumn kByGuest{{"guest_ipi_call_function", "guest_ipi_reschedule"}, "the guest's own /proc/interrupts"};

struct Row {
  std::string arm;
  std::vector<const Json*> trials;
  std::vector<double> seconds;
};

// The number of a counter of one vCPU in one trial; nothing when it is null or absent.
std::optional<double> counter(const Json& trial, std::size_t vcpu, std::string_view name) {
  const Json& vcpus = trial.at("vcpus");
  if (vcpu >= vcpus.size()) return std::nullopt;
  const Json& counters = vcpus.at(vcpu).at("counters");
  const auto entry = counters.find(name);
  if (entry == counters.end()) return std::nullopt;
  const Json& value = entry->at("value");
  if (value.is_null()) return std::nullopt;
  return value.get<double>();
}

// Median over the trials of the sum of some counters; nothing as soon as one is not known.
template <std::size_t N>
std::optional<double> median_of(const Row& row, std::size_t vcpu, const std::array<std::string_view, N>& names) {
  std::vector<double> values;
  for (const Json* trial : row.trials) {
    double sum = 0;
    for (const std::string_view name : names) {
      const auto value = counter(*trial, vcpu, name);
      if (!value) return std::nullopt;
      sum += *value;
    }
    values.push_back(sum);
  }
  if (values.empty()) return std::nullopt;
  return median(values);
}

std::vector<Row> rows_of(const Json& document) {
  std::vector<Row> rows;
  for (const Json& arm : document.at("arms")) {
    Row row{arm.at("name").get<std::string>(), {}, {}};
    for (const Json& trial : document.at("trials")) {
      if (trial.at("arm") != row.arm) continue;
      row.trials.push_back(&trial);
      row.seconds.push_back(trial.at("seconds").get<double>());
    }
    if (row.trials.empty() || rows.size() >= kArmsMaximum)
      throw base::BadInput("an arm without trials, or too many arms");
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string cell(std::optional<double> value) {
  return value ? fmt::format("{:.0f}", *value) : std::string("-");
}

std::string render(const Json& document) {
  const std::vector<Row> rows = rows_of(document);
  if (rows.empty()) throw base::BadInput("no arms");
  std::size_t vcpus = 0;
  for (const Row& row : rows) vcpus = std::max(vcpus, row.trials.front()->at("vcpus").size());
  vcpus = std::min(vcpus, kVcpusShown);
  const bool traced = std::ranges::all_of(
      rows, [&](const Row& row) { return row.arm == kHost || median_of(row, 0, kByTracepoint.counters).has_value(); });
  const IpiColumn& ipi = traced ? kByTracepoint : kByGuest;
  const auto host = std::ranges::find(rows, kHost, &Row::arm);

  std::string out = fmt::format("{:<{}}{:>9}{:>15}{:>9}", "", kArmWidth, "seconds", "min..max", "of host");
  for (std::size_t vcpu = 0; vcpu < vcpus; ++vcpu) {
    out += fmt::format("{:>9}{:>8}", fmt::format("HLT {}", vcpu), fmt::format("IPI {}{}", vcpu, traced ? "" : "g"));
  }
  out += '\n';
  for (const Row& row : rows) {
    const auto [least, most] = std::ranges::minmax(row.seconds);
    const double middle = median(row.seconds);
    out += fmt::format("{:<{}}{:>9.3f}{:>15}", row.arm, kArmWidth, middle, fmt::format("{:.2f}..{:.2f}", least, most));
    // As in the seed's table: how much of the host's speed is left.
    out +=
        host == rows.end() ? fmt::format("{:>9}", "-") : fmt::format("{:>8.1f}%", 100 * median(host->seconds) / middle);
    if (row.arm != kHost) {
      for (std::size_t vcpu = 0; vcpu < vcpus; ++vcpu) {
        out += fmt::format("{:>9}{:>8}", cell(median_of(row, vcpu, std::array<std::string_view, 1>{"hlt_exits"})),
                           cell(median_of(row, vcpu, ipi.counters)));
      }
    }
    out += '\n';
  }
  out += fmt::format("\n{}: medians of {} trials an arm, in random order (seed {}).\n",
                     document.at("config").at("workload").at("name").get<std::string>(), rows.front().trials.size(),
                     document.at("seed").get<std::uint64_t>());
  out += "of host: the host's time / this time.  HLT n: HLT exits of vCPU n (KVM's halt_exits).\n";
  out += fmt::format("IPI n: call-function and reschedule IPIs injected into vCPU n ({}).\n", ipi.source);
  if (const auto restarts = document.find("guest_restarts"); restarts != document.end() && !restarts->empty()) {
    out += fmt::format("The guest crashed {} times and was started again; the trials it was in were repeated.\n",
                       restarts->size());
  }
  return out;
}

}  // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values.at(middle) : (values.at(middle - 1) + values.at(middle)) / 2;
}

std::string compare_table(const Json& document) {
  try {
    if (!document.is_object() || document.value("schema", std::string()) != kCompareSchema) {
      throw base::BadInput(fmt::format("not a result of `vmm compare` (schema {})", kCompareSchema));
    }
    return render(document);
  } catch (const nlohmann::json::exception& error) {
    throw base::BadInput(fmt::format("a damaged result of `vmm compare`: {}", error.what()));
  }
}

}  // namespace vmm::experiment
