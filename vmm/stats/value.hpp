// SPDX-License-Identifier: Apache-2.0
// One measured number with what makes it believable: unit, source, and the reason when it could not be had.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace vmm::stats {

enum class Unit { kCount, kNanoseconds, kMicroseconds, kSeconds, kPercent, kBytes, kCycles, kBoolean, kMicrojoules };

// Where a number comes from (docs/metrics.md). kRusage is the host's accounting of the vCPU thread.
enum class Source { kKvmStats, kTracepoint, kUserApic, kGuest, kPayload, kRusage, kPowercap };

std::string_view name_of(
    Unit unit) noexcept;  // "count", "ns", "us", "s", "percent", "bytes", "cycles", "boolean", "uJ"
std::string_view name_of(
    Source source) noexcept;  // "kvm-stats", "tracepoint", "user-apic", "guest", "payload", "rusage", "powercap"

// A number or, when it is unknown, the reason. There is no default number: unknown is never 0.
class Value {
 public:
  // Null, "not measured".
  Value() = default;

  static Value number(std::uint64_t number, Unit unit, Source source);
  static Value number(double number, Unit unit, Source source);  // not finite: null, "not a finite number"
  static Value count(std::uint64_t count, Source source) { return number(count, Unit::kCount, source); }
  static Value null(Unit unit, Source source, std::string reason);

  bool known() const noexcept { return !std::holds_alternative<std::monostate>(number_); }
  std::optional<std::uint64_t> integer() const noexcept;  // nothing when null or a double
  std::optional<double> real() const noexcept;            // integers converted; nothing when null
  Unit unit() const noexcept { return unit_; }
  Source source() const noexcept { return source_; }
  const std::string& reason() const noexcept { return reason_; }  // empty when known

  bool operator==(const Value&) const = default;

 private:
  std::variant<std::monostate, std::uint64_t, double> number_;
  Unit unit_ = Unit::kCount;
  Source source_ = Source::kKvmStats;
  std::string reason_ = "not measured";
};

// after - before of a counter, with `after`'s unit and source. Null when either is null (that side's reason is kept),
// "units differ", or "went backwards" when an integer counter decreased.
Value difference(const Value& before, const Value& after);

// a + b; null when either is null (its reason is kept), "units differ", or on overflow. `a`'s source.
Value sum(const Value& a, const Value& b);

// a - b of two numbers of the same instant, for derived ones such as "other = total - known". Null as in difference(),
// but a negative result is "parts exceed the whole".
Value remainder(const Value& whole, const Value& parts);

// {"value": 7109, "unit": "count", "source": "kvm-stats"}; null: {"value": null, …, "reason": "…"}.
nlohmann::ordered_json to_json(const Value& value);

}  // namespace vmm::stats
