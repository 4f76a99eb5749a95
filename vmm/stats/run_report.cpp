// SPDX-License-Identifier: Apache-2.0
#include "stats/run_report.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "stats/exit_reasons.hpp"

namespace vmm::stats {
namespace {

constexpr std::size_t kColumns = 100;
// More vCPUs than this do not fit side by side: then the table of reasons shows their sum only.
constexpr std::size_t kMaxVcpuColumns = 6;

// KVM's own counters that come nearest to exit reasons, for hosts without tracepoints. One exit may count in several of
// them or in none.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kKvmExitCounters{
    {{"hlt", "hlt_exits"},
     {"io", "kvm.io_exits"},
     {"mmio", "kvm.mmio_exits"},
     {"external_interrupt", "kvm.irq_exits"},
     {"interrupt_window", "kvm.irq_window_exits"},
     {"hypercall", "kvm.hypercalls"},
     {"page_fault", "kvm.pf_taken"},
     {"signal", "kvm.signal_exits"},
     {"request_irq", "kvm.request_irq_exits"}}};

std::string reason_counter(ExitClass exit_class) {
  return fmt::format("exits_by_reason.{}", name_of(exit_class));
}

std::vector<ExitClass> all_exit_classes() {
  std::vector<ExitClass> classes(kNamedExitClasses.begin(), kNamedExitClasses.end());
  classes.push_back(ExitClass::kOther);
  return classes;
}

std::string format_number(const Value& value) {
  if (const auto integer = value.integer()) return std::to_string(*integer);
  return fmt::format("{:.2f}", value.real().value_or(0));
}

// Breaks `text` at blanks so that no line is longer than kColumns; further lines are indented.
std::string wrapped(std::string_view first_indent, std::string_view text) {
  constexpr std::string_view kIndent = "    ";
  std::string result;
  std::string line(first_indent);
  bool empty = true;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (!empty && line.size() + 1 + word.size() > kColumns) {
      result += line + "\n";
      line = kIndent;
      empty = true;
    }
    while (line.size() + word.size() > kColumns) {  // a word longer than a line
      const std::size_t fits = kColumns - line.size();
      result += line + std::string(word.substr(0, fits)) + "\n";
      word.remove_prefix(fits);
      line = kIndent;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  return result + line + "\n";
}

// Foot lines: a number for each reason of a null, and each source in use with what it covers.
class Notes {
 public:
  // The value, or "-[n]".
  std::string cell(const Value& value) {
    if (value.known()) return format_number(value);
    const auto found = std::ranges::find(reasons_, value.reason());
    const auto index = static_cast<std::size_t>(found - reasons_.begin());
    if (found == reasons_.end()) reasons_.push_back(value.reason());
    return fmt::format("-[{}]", index + 1);
  }
  // The value if it is known, else the guest's own count marked "g", else "-[n]" with the reason of the first.
  std::string cell_or_guest(const Value& value, const Value& guest) {
    if (value.known() || !guest.known()) return cell(value);
    guest_used_ = true;
    return format_number(guest) + "g";
  }
  std::string lines() const {
    std::string text;
    if (guest_used_) text += wrapped("", "g: the guest's own count, since the tracepoint's could not be had");
    for (std::size_t index = 0; index < reasons_.size(); ++index) {
      text += wrapped("", fmt::format("[{}] {}", index + 1, reasons_[index]));
    }
    return text;
  }

 private:
  std::vector<std::string> reasons_;
  bool guest_used_ = false;
};

struct Column {
  std::string_view head;
  std::string_view unit;
  std::string_view counter;
  std::string_view guest;  // stands in when the counter is null
};
// IPIs "injected" are those that the target's APIC accepted (docs/metrics.md).
constexpr std::array<Column, 9> kRunColumns{
    {{"HLT", "exits", "hlt_exits", ""},
     {"IPI", "resched", "ipi_injected_reschedule", "guest_ipi_reschedule"},
     {"IPI", "call-fn", "ipi_injected_call_function", "guest_ipi_call_function"},
     {"IPI", "other", "ipi_injected_other", ""},
     {"IPI", "all", "ipi_injected", "guest_ipi_received"},
     {"spin", "hits", "guest_spin_hits", ""},
     {"spin", "misses", "guest_spin_misses", ""},
     {"all", "exits", "exits", ""},
     {"CPU", "s", "cpu_on_ns", ""}}};

Value in_seconds(const Value& ns) {
  if (!ns.known()) return ns;
  return Value::number(*ns.real() / 1e9, Unit::kSeconds, ns.source());
}

std::string headline(const RunResult& result) {
  std::string text = fmt::format("status {}: {}", result.exit_status, result.exit_reason);
  if (result.workload) {
    const WorkloadResult& workload = *result.workload;
    text += fmt::format("; {}: {} s", workload.name, workload.seconds.known() ? format_number(workload.seconds) : "-");
    if (workload.operations.known()) text += fmt::format(", {} operations", format_number(workload.operations));
  }
  if (!result.interval.empty()) text += fmt::format("; counted: {}", result.interval);
  return wrapped("", text);
}

std::string counters_table(const RunResult& result, Notes& notes) {
  constexpr std::size_t kFirst = 5;
  constexpr std::size_t kWidth = 10;
  std::string heads = fmt::format("{:<{}}", "vCPU", kFirst);
  std::string units = fmt::format("{:<{}}", "", kFirst);
  for (const Column& column : kRunColumns) {
    heads += fmt::format("{:>{}}", column.head, kWidth);
    units += fmt::format("{:>{}}", column.unit, kWidth);
  }
  std::string text = fmt::format("{}\n{}\n", heads, units);
  const auto row = [&](const std::string& name, const auto& read) {
    text += fmt::format("{:<{}}", name, kFirst);
    for (const Column& column : kRunColumns) {
      Value value = read(column.counter);
      if (column.counter == "cpu_on_ns") value = in_seconds(value);
      text += fmt::format("{:>{}}", notes.cell_or_guest(value, column.guest.empty() ? Value() : read(column.guest)),
                          kWidth);
    }
    text += "\n";
  };
  for (const VcpuSnapshot& vcpu : result.vcpus) {
    row(std::to_string(vcpu.id), [&](std::string_view name) { return vcpu.counter(name); });
  }
  row("sum", [&](std::string_view name) { return sum_over_vcpus(result.vcpus, name); });
  return text;
}

bool traced(std::span<const VcpuSnapshot> vcpus) {
  return sum_over_vcpus(vcpus, "exits_traced").known();
}

struct ReasonRow {
  std::string name;
  std::string counter;
};
std::vector<ReasonRow> reason_rows(bool by_tracepoint) {
  std::vector<ReasonRow> rows;
  if (by_tracepoint) {
    for (const ExitClass exit_class : all_exit_classes()) {
      rows.push_back({std::string(name_of(exit_class)), reason_counter(exit_class)});
    }
  } else {
    for (const auto& [name, counter] : kKvmExitCounters) rows.push_back({std::string(name), std::string(counter)});
  }
  return rows;
}

Value percent(const Value& part, const Value& whole) {
  const auto fail = [&](std::string reason) { return Value::null(Unit::kPercent, part.source(), std::move(reason)); };
  if (!part.known()) return fail(part.reason());
  if (!whole.known()) return fail(whole.reason());
  if (*whole.real() == 0) return fail("there were no exits");
  return Value::number(100 * *part.real() / *whole.real(), Unit::kPercent, part.source());
}

constexpr std::string_view kOwnCounters =
    "By KVM's own counters, since tracepoints cannot be counted: they overlap and do not add up to `exits`.";

std::string reasons_table(std::span<const VcpuSnapshot> vcpus, Notes& notes) {
  constexpr std::size_t kFirst = 20;
  constexpr std::size_t kWidth = 10;
  const bool by_tracepoint = traced(vcpus);
  const bool side_by_side = vcpus.size() <= kMaxVcpuColumns;
  const std::string total_name = by_tracepoint ? "exits_traced" : "exits";
  const Value total = sum_over_vcpus(vcpus, total_name);

  std::string text = fmt::format("{:<{}}", "exits by reason", kFirst);
  if (side_by_side) {
    for (const VcpuSnapshot& vcpu : vcpus) text += fmt::format("{:>{}}", fmt::format("vCPU {}", vcpu.id), kWidth);
  }
  text += fmt::format("{:>{}}{:>{}}\n", "sum", kWidth, "percent", kWidth);
  const auto line = [&](const std::string& name, const std::string& counter) {
    text += fmt::format("{:<{}}", name, kFirst);
    if (side_by_side) {
      for (const VcpuSnapshot& vcpu : vcpus) text += fmt::format("{:>{}}", notes.cell(vcpu.counter(counter)), kWidth);
    }
    const Value all = sum_over_vcpus(vcpus, counter);
    text += fmt::format("{:>{}}{:>{}}\n", notes.cell(all), kWidth, notes.cell(percent(all, total)), kWidth);
  };
  for (const ReasonRow& row : reason_rows(by_tracepoint)) line(row.name, row.counter);
  line(by_tracepoint ? "total (traced)" : "total (exits)", total_name);
  if (!by_tracepoint) text += wrapped("", kOwnCounters);
  return text;
}

std::string sources_lines(const RunResult& result) {
  std::vector<std::pair<std::string_view, std::string>> by_source;
  for (const Column& column : kRunColumns) {
    const Value value = sum_over_vcpus(result.vcpus, column.counter);
    if (!value.known()) continue;
    const std::string what = fmt::format("{} {}", column.head, column.unit);
    const auto found =
        std::ranges::find(by_source, name_of(value.source()), &std::pair<std::string_view, std::string>::first);
    if (found == by_source.end()) {
      by_source.emplace_back(name_of(value.source()), what);
    } else {
      found->second += fmt::format(", {}", what);
    }
  }
  std::string text;
  for (const auto& [source, what] : by_source) text += wrapped("", fmt::format("source {}: {}", source, what));
  return text;
}

std::string agreement_lines(std::span<const Agreement> agreements) {
  std::size_t agree = 0;
  std::size_t known = 0;
  std::string disagreements;
  for (const Agreement& agreement : agreements) {
    if (agreement.verdict == Agreement::Verdict::kUnknown) continue;
    ++known;
    if (agreement.verdict == Agreement::Verdict::kAgree) {
      ++agree;
      continue;
    }
    disagreements +=
        wrapped("  ", fmt::format("vCPU {}: {} is {}, {} is {}", agreement.vcpu, agreement.name_a,
                                  format_number(agreement.a), agreement.name_b, format_number(agreement.b)));
  }
  if (known == 0) return {};
  return fmt::format("{} of {} pairs of sources agree\n{}", agree, known, disagreements);
}

nlohmann::ordered_json to_json(const WorkloadResult& workload) {
  nlohmann::ordered_json json;
  json["name"] = workload.name;
  // Plain numbers, as the schema has them; the guest is their only source.
  const auto plain = [](const Value& value) {
    if (const auto integer = value.integer()) return nlohmann::ordered_json(*integer);
    if (const auto real = value.real()) return nlohmann::ordered_json(*real);
    return nlohmann::ordered_json(nullptr);
  };
  json["seconds"] = plain(workload.seconds);
  if (!workload.seconds.known()) json["seconds_reason"] = workload.seconds.reason();
  json["operations"] = plain(workload.operations);
  if (workload.raw.is_object()) {
    for (const auto& [key, value] : workload.raw.items()) {
      if (!json.contains(key) && key != "workload") json[key] = value;
    }
  }
  return json;
}

nlohmann::ordered_json to_json(std::span<const VcpuSnapshot> vcpus) {
  auto json = nlohmann::ordered_json::array();
  for (const VcpuSnapshot& vcpu : vcpus) json.push_back(to_json(vcpu));
  return json;
}

nlohmann::ordered_json object_or_empty(const nlohmann::ordered_json& json) {
  return json.is_null() ? nlohmann::ordered_json::object() : json;
}

}  // namespace

nlohmann::ordered_json to_json(const RunResult& result) {
  nlohmann::ordered_json json;
  json["schema"] = kRunSchema;
  json["exit"] = {{"status", result.exit_status}, {"reason", result.exit_reason}};
  json["config"] = object_or_empty(result.config);
  json["effective"] = object_or_empty(result.effective);
  json["host"] = object_or_empty(result.host);
  auto phases = nlohmann::ordered_json::object();
  for (const auto& [name, ms] : result.phases_ms) phases[name] = ms;
  json["phases_ms"] = std::move(phases);
  json["interval"] = result.interval;
  json["vcpus"] = to_json(std::span(result.vcpus));
  json["workload"] = result.workload ? to_json(*result.workload) : nlohmann::ordered_json(nullptr);
  json["exit_statistics"] = exit_statistics_json(result.vcpus);
  auto agreements = nlohmann::ordered_json::array();
  for (const Agreement& agreement : result.agreements) agreements.push_back(to_json(agreement));
  json["agreements"] = std::move(agreements);
  auto trials = nlohmann::ordered_json::array();
  for (const TrialResult& trial : result.trials) {
    nlohmann::ordered_json entry;
    entry["trial"] = trial.trial;
    entry["workload"] = to_json(trial.workload);
    entry["vcpus"] = to_json(std::span(trial.vcpus));
    entry["begin_attempts"] = trial.begin_attempts;
    entry["end_attempts"] = trial.end_attempts;
    trials.push_back(std::move(entry));
  }
  json["trials"] = std::move(trials);
  json["notes"] = result.notes;
  return json;
}

std::string run_table(const RunResult& result) {
  std::string text = headline(result);
  Notes notes;
  if (!result.vcpus.empty()) {
    text += '\n';
    text += counters_table(result, notes);
    text += '\n';
    text += reasons_table(result.vcpus, notes);
    text += '\n';
    text += sources_lines(result);
    text += notes.lines();
    text += agreement_lines(result.agreements);
  }
  for (const std::string& note : result.notes) text += wrapped("", fmt::format("note: {}", note));
  return text;
}

std::string exit_statistics_table(std::span<const VcpuSnapshot> vcpus) {
  constexpr std::size_t kFirst = 20;
  constexpr std::size_t kWidth = 14;
  const bool by_tracepoint = traced(vcpus);
  const std::string total_name = by_tracepoint ? "exits_traced" : "exits";
  Notes notes;
  std::string text;
  for (const VcpuSnapshot& vcpu : vcpus) {
    text += fmt::format("{:<{}}{:>{}}{:>{}}{:>{}}{:>{}}\n", fmt::format("vCPU {}", vcpu.id), kFirst, "exits", kWidth,
                        "percent", kWidth, "time ms", kWidth, "p50 below us", kWidth);
    for (const ReasonRow& row : reason_rows(by_tracepoint)) {
      const Value count = vcpu.counter(row.counter);
      if (count.integer() == std::uint64_t{0}) continue;
      const std::string time_name = fmt::format("exit_time_ns.{}", row.name);
      const Value ns = vcpu.counters.contains(time_name)
                           ? vcpu.counter(time_name)
                           : Value::null(Unit::kNanoseconds, Source::kTracepoint, "exit times were not asked for");
      const Value ms = ns.known() ? Value::number(*ns.real() / 1e6, Unit::kCount, ns.source()) : ns;
      const auto histogram = vcpu.histograms.find(time_name);
      Value median = histogram == vcpu.histograms.end() ? Value() : histogram->second.quantile_upper_bound(0.5);
      if (median.known()) median = Value::number(*median.real() / 1e3, Unit::kMicroseconds, median.source());
      text += fmt::format("  {:<{}}{:>{}}{:>{}}{:>{}}{:>{}}\n", row.name, kFirst - 2, notes.cell(count), kWidth,
                          notes.cell(percent(count, vcpu.counter(total_name))), kWidth, notes.cell(ms), kWidth,
                          notes.cell(median), kWidth);
    }
    text += fmt::format("  {:<{}}{:>{}}\n", "exits", kFirst - 2, notes.cell(vcpu.counter("exits")), kWidth);
  }
  if (!by_tracepoint && !vcpus.empty()) text += wrapped("", kOwnCounters);
  return text + notes.lines();
}

nlohmann::ordered_json exit_statistics_json(std::span<const VcpuSnapshot> vcpus) {
  const bool by_tracepoint = traced(vcpus);
  auto json = nlohmann::ordered_json::array();
  for (const VcpuSnapshot& vcpu : vcpus) {
    nlohmann::ordered_json entry;
    entry["id"] = vcpu.id;
    entry["source"] = name_of(by_tracepoint ? Source::kTracepoint : Source::kKvmStats);
    entry["complete"] = by_tracepoint;  // false: the reasons overlap and do not add up
    entry["exits"] = to_json(vcpu.counter("exits"));
    const Value total = vcpu.counter(by_tracepoint ? "exits_traced" : "exits");
    if (by_tracepoint) entry["sum"] = to_json(total);
    auto reasons = nlohmann::ordered_json::array();
    for (const ReasonRow& row : reason_rows(by_tracepoint)) {
      const Value count = vcpu.counter(row.counter);
      nlohmann::ordered_json reason;
      reason["reason"] = row.name;
      reason["count"] = to_json(count);
      reason["share"] = to_json(percent(count, total));
      const std::string time_name = fmt::format("exit_time_ns.{}", row.name);
      reason["time"] = to_json(vcpu.counters.contains(time_name) ? vcpu.counter(time_name)
                                                                 : Value::null(Unit::kNanoseconds, Source::kTracepoint,
                                                                               "exit times were not asked for"));
      reasons.push_back(std::move(reason));
    }
    entry["reasons"] = std::move(reasons);
    json.push_back(std::move(entry));
  }
  return json;
}

}  // namespace vmm::stats
