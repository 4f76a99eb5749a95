// SPDX-License-Identifier: Apache-2.0
#include "stats/vcpu_snapshot.hpp"

#include <array>
#include <cstdint>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

namespace vmm::stats {
namespace {

// KVM's names (arch/x86/include/asm/kvm_host.h, struct kvm_vcpu_stat; include/linux/kvm_types.h) and ours.
struct Renamed {
  std::string_view kvm;
  std::string_view ours;
};
constexpr std::array<Renamed, 10> kCounters{{{"halt_exits", "hlt_exits"},
                                             {"exits", "exits"},
                                             {"irq_injections", "irq_injections"},
                                             {"halt_attempted_poll", "halt_polls_attempted"},
                                             {"halt_successful_poll", "halt_polls_successful"},
                                             {"halt_poll_invalid", "halt_polls_invalid"},
                                             {"halt_poll_success_ns", "halt_poll_won_ns"},
                                             {"halt_poll_fail_ns", "halt_poll_lost_ns"},
                                             {"halt_wait_ns", "halt_wait_ns"},
                                             {"halt_wakeup", "halt_wakeups"}}};
constexpr std::array<Renamed, 3> kHistograms{{{"halt_poll_success_hist", "halt_poll_won_ns"},
                                              {"halt_poll_fail_hist", "halt_poll_lost_ns"},
                                              {"halt_wait_hist", "halt_wait_ns"}}};

template <std::size_t N>
const Renamed* find_renamed(const std::array<Renamed, N>& table, std::string_view kvm) {
  for (const Renamed& entry : table) {
    if (entry.kvm == kvm) return &entry;
  }
  return nullptr;
}

// The guest's counters and what a mark calls them.
struct GuestCounter {
  std::string_view key;
  std::string_view name;
  Unit unit;
};
constexpr std::array<GuestCounter, 5> kAgentCounters{{{"timer_interrupts", "guest_timer_interrupts", Unit::kCount},
                                                      {"spin_hits_remote", "guest_spin_hits_remote", Unit::kCount},
                                                      {"spin_hits_local", "guest_spin_hits_local", Unit::kCount},
                                                      {"spin_misses", "guest_spin_misses", Unit::kCount},
                                                      {"spin_ns", "guest_spin_ns", Unit::kNanoseconds}}};
constexpr std::array<GuestCounter, 10> kPayloadCounters{{{"hlt", "guest_hlt", Unit::kCount},
                                                         {"hlt_spurious", "guest_hlt_spurious", Unit::kCount},
                                                         {"ipi_sent", "guest_ipi_sent", Unit::kCount},
                                                         {"ipi_skipped", "guest_ipi_skipped", Unit::kCount},
                                                         {"ipi_received", "guest_ipi_received", Unit::kCount},
                                                         {"woken_early", "guest_woken_early", Unit::kCount},
                                                         {"timer_interrupts", "guest_timer_interrupts", Unit::kCount},
                                                         {"spin_hits", "guest_spin_hits_remote", Unit::kCount},
                                                         {"spin_hits_late", "guest_spin_hits_late", Unit::kCount},
                                                         {"spin_misses", "guest_spin_misses", Unit::kCount}}};

constexpr std::size_t kMaxGuestBuckets = 64;
constexpr std::string_view kNotReported = "guest did not report";

// What a hostile JSON holds where a number belongs, short enough for a message.
std::string describe(const nlohmann::json& json) {
  if (json.is_number_float()) return "a fraction";
  if (json.is_number_integer() && !json.is_number_unsigned() && json.get<std::int64_t>() < 0)
    return "a negative number";
  return fmt::format("a JSON {}", json.type_name());
}

struct GuestReader {
  Source source;

  Value null(Unit unit, std::string reason) const { return Value::null(unit, source, std::move(reason)); }

  // `object[key]` as a counter. `object` may be null: the vCPU was not reported at all.
  Value counter(const nlohmann::json* object, std::string_view key, Unit unit) const {
    if (object == nullptr) return null(unit, std::string(kNotReported));
    const auto found = object->find(key);
    if (found == object->end() || found->is_null()) return null(unit, std::string(kNotReported));
    if (found->is_number_unsigned()) return Value::number(found->get<std::uint64_t>(), unit, source);
    if (found->is_number_integer() && found->get<std::int64_t>() >= 0) {
      return Value::number(static_cast<std::uint64_t>(found->get<std::int64_t>()), unit, source);
    }
    return null(unit, fmt::format("guest reported nonsense: {} is {}", key, describe(*found)));
  }

  Histogram histogram(const nlohmann::json* object, std::string_view key, Unit unit) const {
    const auto fail = [&](std::string reason) { return Histogram::null(unit, source, std::move(reason)); };
    if (object == nullptr) return fail(std::string(kNotReported));
    const auto found = object->find(key);
    if (found == object->end() || found->is_null()) return fail(std::string(kNotReported));
    if (!found->is_array() || found->empty() || found->size() > kMaxGuestBuckets) {
      return fail(fmt::format("guest reported nonsense: {} is no array of 1 to {} buckets", key, kMaxGuestBuckets));
    }
    Histogram histogram;
    histogram.unit = unit;
    histogram.source = source;
    for (const auto& bucket : *found) {
      if (!bucket.is_number_unsigned()) {
        return fail(fmt::format("guest reported nonsense: a bucket of {} is {}", key, describe(bucket)));
      }
      histogram.counts.push_back(bucket.get<std::uint64_t>());
    }
    return histogram;
  }
};

// The object of vCPU `id` in guest["vcpus"]; nothing when it is absent. `nonsense` is set when the report as a whole or
// this vCPU's part of it makes no sense.
const nlohmann::json* find_vcpu(const nlohmann::json& guest, unsigned id, std::string& nonsense) {
  if (!guest.is_object()) {
    if (!guest.is_null()) nonsense = fmt::format("the report is {}", describe(guest));
    return nullptr;
  }
  const auto vcpus = guest.find("vcpus");
  if (vcpus == guest.end()) return nullptr;
  if (!vcpus->is_array()) {
    nonsense = fmt::format("vcpus is {}", describe(*vcpus));
    return nullptr;
  }
  const nlohmann::json* found = nullptr;
  for (const auto& vcpu : *vcpus) {
    if (!vcpu.is_object()) continue;
    const auto number = vcpu.find("id");
    if (number == vcpu.end() || !number->is_number_unsigned() || number->get<std::uint64_t>() != id) continue;
    if (found != nullptr) {
      nonsense = fmt::format("vCPU {} appears twice", id);
      return nullptr;
    }
    found = &vcpu;
  }
  return found;
}

void merge_agent(VcpuSnapshot& into, const GuestReader& reader, const nlohmann::json* object) {
  const auto set = [&](std::string_view name, Value value) {
    into.counters.insert_or_assign(std::string(name), std::move(value));
  };
  for (const auto& entry : kAgentCounters) set(entry.name, reader.counter(object, entry.key, entry.unit));
  set("guest_ipi_reschedule", reader.counter(object, "ipi_reschedule", Unit::kCount));

  // A guest whose /proc/interrupts adds both call-function vectors up says so by the one key.
  if (object != nullptr && object->contains("ipi_call_function_all")) {
    set("guest_ipi_call_function", reader.counter(object, "ipi_call_function_all", Unit::kCount));
    for (const char* name : {"guest_ipi_call_function_many", "guest_ipi_call_function_single"}) {
      set(name, reader.null(Unit::kCount, "the guest counts both call-function vectors together"));
    }
  } else {
    const Value many = reader.counter(object, "ipi_call_function", Unit::kCount);
    const Value single = reader.counter(object, "ipi_call_function_single", Unit::kCount);
    set("guest_ipi_call_function_many", many);
    set("guest_ipi_call_function_single", single);
    set("guest_ipi_call_function", sum(many, single));
  }
  set("guest_spin_hits", sum(into.counter("guest_spin_hits_remote"), into.counter("guest_spin_hits_local")));
  into.histograms.insert_or_assign("guest_idle_gap_ns",
                                   reader.histogram(object, "idle_gap_ns_log2", Unit::kNanoseconds));
}

void merge_payload(VcpuSnapshot& into, const GuestReader& reader, const nlohmann::json* object) {
  for (const auto& entry : kPayloadCounters) {
    into.counters.insert_or_assign(std::string(entry.name), reader.counter(object, entry.key, entry.unit));
  }
  into.counters.insert_or_assign("guest_spin_hits",
                                 sum(into.counter("guest_spin_hits_remote"), into.counter("guest_spin_hits_late")));
}

Agreement compare(const VcpuSnapshot& interval, std::string name_a, std::string name_b, Value a, Value b) {
  Agreement agreement{interval.id,  std::move(name_a), std::move(name_b),
                      std::move(a), std::move(b),      Agreement::Verdict::kUnknown};
  if (agreement.a.known() && agreement.b.known()) {
    const bool equal = agreement.a.integer() == agreement.b.integer() && agreement.a.real() == agreement.b.real();
    agreement.verdict = equal ? Agreement::Verdict::kAgree : Agreement::Verdict::kDisagree;
  }
  return agreement;
}

}  // namespace

Value VcpuSnapshot::counter(std::string_view name) const {
  const auto found = counters.find(name);
  return found == counters.end() ? Value() : found->second;
}

VcpuSnapshot difference(const VcpuSnapshot& before, const VcpuSnapshot& after) {
  VcpuSnapshot result;
  result.id = after.id;
  result.levels = after.levels;
  for (const auto& [name, value] : after.counters) {
    if (after.levels.contains(name)) {
      result.counters.emplace(name, value);
      continue;
    }
    const auto found = before.counters.find(name);
    result.counters.emplace(name, found != before.counters.end()
                                      ? difference(found->second, value)
                                      : Value::null(value.unit(), value.source(), "not measured at the beginning"));
  }
  for (const auto& [name, value] : before.counters) {
    if (after.counters.contains(name)) continue;
    result.counters.emplace(name, Value::null(value.unit(), value.source(), "not measured at the end"));
  }
  for (const auto& [name, value] : after.histograms) {
    const auto found = before.histograms.find(name);
    result.histograms.emplace(name, found != before.histograms.end()
                                        ? difference(found->second, value)
                                        : Histogram::null(value.unit, value.source, "not measured at the beginning"));
  }
  for (const auto& [name, value] : before.histograms) {
    if (after.histograms.contains(name)) continue;
    result.histograms.emplace(name, Histogram::null(value.unit, value.source, "not measured at the end"));
  }
  return result;
}

std::vector<VcpuSnapshot> difference(std::span<const VcpuSnapshot> before, std::span<const VcpuSnapshot> after) {
  if (before.size() != after.size()) throw std::invalid_argument("snapshots of different numbers of vCPUs");
  std::vector<VcpuSnapshot> result;
  result.reserve(after.size());
  for (std::size_t index = 0; index < after.size(); ++index) {
    if (before[index].id != after[index].id) throw std::invalid_argument("snapshots of different vCPUs");
    result.push_back(difference(before[index], after[index]));
  }
  return result;
}

Value sum_over_vcpus(std::span<const VcpuSnapshot> vcpus, std::string_view counter) {
  if (vcpus.empty()) return Value();
  Value total = vcpus.front().counter(counter);
  for (const VcpuSnapshot& vcpu : vcpus.subspan(1)) total = sum(total, vcpu.counter(counter));
  return total;
}

void merge_kvm_stats(VcpuSnapshot& into, const KvmStatsSnapshot& stats) {
  for (const Renamed& entry : kCounters) {
    into.counters.insert_or_assign(std::string(entry.ours), stats.value(entry.kvm));
  }
  for (const Renamed& entry : kHistograms) {
    into.histograms.insert_or_assign(std::string(entry.ours), stats.histogram(entry.kvm));
  }
  for (const auto& [name, reading] : stats.readings) {
    const bool histogram = is_histogram(reading.descriptor);
    if (find_renamed(kCounters, name) != nullptr || find_renamed(kHistograms, name) != nullptr) continue;
    const std::string ours = "kvm." + name;
    if (histogram) {
      into.histograms.insert_or_assign(ours, to_histogram(reading));
      continue;
    }
    into.counters.insert_or_assign(ours, to_value(reading));
    if (reading.descriptor.kind != StatKind::kCumulative) into.levels.insert(ours);
  }
  null_silent_tracepoints(into);
}

void null_silent_tracepoints(VcpuSnapshot& snapshot) {
  const auto silent = [&](const char* proof, const char* traced) {
    const auto happened = snapshot.counter(proof).integer();
    return happened && *happened > 0 && snapshot.counter(traced).integer() == std::uint64_t{0};
  };
  const auto null_all = [&](const char* tracepoint, auto belongs) {
    for (auto& [name, value] : snapshot.counters) {
      if (value.source() != Source::kTracepoint || !value.known() || !belongs(name)) continue;
      value = Value::null(value.unit(), Source::kTracepoint,
                          fmt::format("this host's KVM module does not raise kvm:{}", tracepoint));
    }
  };
  if (silent("exits", "exits_traced") || silent("hlt_exits", "exits_by_reason.hlt")) {
    null_all("kvm_exit", [](const std::string& name) {
      return name == "exits_traced" || name.starts_with("exits_by_reason.") || name.starts_with("exit_time_");
    });
    for (auto& [name, histogram] : snapshot.histograms) {
      if (name.starts_with("exit_time_") && histogram.known()) {
        histogram =
            Histogram::null(histogram.unit, histogram.source, "this host's KVM module does not raise kvm:kvm_exit");
      }
    }
  }
  if (silent("irq_injections", "virq_injections")) {
    null_all("kvm_inj_virq", [](const std::string& name) {
      return name.starts_with("virq_") || name.starts_with("ipi_reinjected_") || name.starts_with("ipi_coalesced_");
    });
  }
}

void merge_guest_mark(std::span<VcpuSnapshot> into, const nlohmann::json& guest, MarkSpeaker speaker) {
  const GuestReader reader{speaker == MarkSpeaker::kAgent ? Source::kGuest : Source::kPayload};
  for (VcpuSnapshot& vcpu : into) {
    std::string nonsense;
    const nlohmann::json* object = find_vcpu(guest, vcpu.id, nonsense);
    if (speaker == MarkSpeaker::kAgent) {
      merge_agent(vcpu, reader, object);
    } else {
      merge_payload(vcpu, reader, object);
    }
    if (nonsense.empty()) continue;
    // Overwrite the "did not report" of each: it did, and it was nonsense.
    const std::string reason = "guest reported nonsense: " + nonsense;
    for (auto& [name, value] : vcpu.counters) {
      if (name.starts_with("guest_")) value = reader.null(value.unit(), reason);
    }
    for (auto& [name, histogram] : vcpu.histograms) {
      if (name.starts_with("guest_")) histogram = Histogram::null(histogram.unit, reader.source, reason);
    }
  }
}

std::vector<Agreement> compare_sources(const VcpuSnapshot& interval) {
  std::vector<Agreement> agreements;
  const auto pair = [&](const char* a, const char* b) {
    if (!interval.counters.contains(a) || !interval.counters.contains(b)) return;
    agreements.push_back(compare(interval, a, b, interval.counter(a), interval.counter(b)));
  };
  pair("hlt_exits", "exits_by_reason.hlt");
  pair("exits", "exits_traced");
  pair("irq_injections", "virq_injections");
  pair("hlt_exits", "guest_hlt");

  // What the guest takes is what its APIC accepted, less what fell together with an interrupt already pending.
  const auto delivered = [&](const char* accepted_name, const char* coalesced_name, const char* guest_name) {
    if (!interval.counters.contains(accepted_name) || !interval.counters.contains(guest_name)) return;
    const Value accepted = interval.counter(accepted_name);
    const Value coalesced = interval.counter(coalesced_name);
    const bool subtract = coalesced.known() && coalesced.integer() != std::uint64_t{0};
    agreements.push_back(
        compare(interval, subtract ? fmt::format("{} - {}", accepted_name, coalesced_name) : accepted_name, guest_name,
                subtract ? remainder(accepted, coalesced) : accepted, interval.counter(guest_name)));
  };
  delivered("ipi_injected_reschedule", "ipi_coalesced_reschedule", "guest_ipi_reschedule");
  delivered("ipi_injected_call_function", "ipi_coalesced_call_function", "guest_ipi_call_function");
  const Value coalesced = interval.counter("ipi_coalesced_call_function");
  if (!coalesced.known() || coalesced.integer() == std::uint64_t{0}) {
    // By vector only while nothing coalesced: the coalesced ones are not known by vector.
    if (interval.counter("guest_ipi_call_function_single").known()) {
      pair("ipi_injected_call_function_single", "guest_ipi_call_function_single");
      pair("ipi_injected_call_function_many", "guest_ipi_call_function_many");
    }
  }
  // A payload counts its three IPI vectors together, and its own writes of the ICR.
  if (interval.counters.contains("guest_ipi_received") && interval.counters.contains("ipi_injected_call_function")) {
    const auto taken = [&](const std::string& kind) {
      const Value coalesced_of_kind = interval.counter("ipi_coalesced_" + kind);
      const Value accepted = interval.counter("ipi_injected_" + kind);
      return coalesced_of_kind.known() ? remainder(accepted, coalesced_of_kind) : accepted;
    };
    agreements.push_back(compare(interval, "ipi_injected_{reschedule,call_function} - coalesced", "guest_ipi_received",
                                 sum(taken("reschedule"), taken("call_function")),
                                 interval.counter("guest_ipi_received")));
  }
  pair("icr_writes", "guest_ipi_sent");
  // A payload's timers rest at a mark. An agent's do not: its counter was read some timer interrupts earlier.
  if (interval.counters.contains("guest_hlt")) pair("timer_interrupts", "guest_timer_interrupts");
  return agreements;
}

nlohmann::ordered_json to_json(const VcpuSnapshot& snapshot) {
  nlohmann::ordered_json json;
  json["id"] = snapshot.id;
  auto counters = nlohmann::ordered_json::object();
  for (const auto& [name, value] : snapshot.counters) counters[name] = to_json(value);
  auto histograms = nlohmann::ordered_json::object();
  for (const auto& [name, histogram] : snapshot.histograms) histograms[name] = to_json(histogram);
  json["counters"] = std::move(counters);
  json["histograms"] = std::move(histograms);
  return json;
}

nlohmann::ordered_json to_json(const Agreement& agreement) {
  nlohmann::ordered_json json;
  json["vcpu"] = agreement.vcpu;
  json["name_a"] = agreement.name_a;
  json["name_b"] = agreement.name_b;
  json["a"] = to_json(agreement.a);
  json["b"] = to_json(agreement.b);
  switch (agreement.verdict) {
    case Agreement::Verdict::kAgree:
      json["agree"] = true;
      break;
    case Agreement::Verdict::kDisagree:
      json["agree"] = false;
      break;
    case Agreement::Verdict::kUnknown:
      json["agree"] = nullptr;
      break;
  }
  return json;
}

}  // namespace vmm::stats
