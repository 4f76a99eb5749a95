// SPDX-License-Identifier: Apache-2.0
#include "stats/value.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace vmm::stats {

std::string_view name_of(Unit unit) noexcept {
  switch (unit) {
    case Unit::kCount:
      return "count";
    case Unit::kNanoseconds:
      return "ns";
    case Unit::kMicroseconds:
      return "us";
    case Unit::kSeconds:
      return "s";
    case Unit::kPercent:
      return "percent";
    case Unit::kBytes:
      return "bytes";
    case Unit::kCycles:
      return "cycles";
    case Unit::kBoolean:
      return "boolean";
    case Unit::kMicrojoules:
      return "uJ";
  }
  return "count";
}

std::string_view name_of(Source source) noexcept {
  switch (source) {
    case Source::kKvmStats:
      return "kvm-stats";
    case Source::kTracepoint:
      return "tracepoint";
    case Source::kUserApic:
      return "user-apic";
    case Source::kGuest:
      return "guest";
    case Source::kPayload:
      return "payload";
    case Source::kRusage:
      return "rusage";
    case Source::kPowercap:
      return "powercap";
  }
  return "kvm-stats";
}

Value Value::number(std::uint64_t number, Unit unit, Source source) {
  Value value;
  value.number_ = number;
  value.unit_ = unit;
  value.source_ = source;
  value.reason_.clear();
  return value;
}

Value Value::number(double number, Unit unit, Source source) {
  if (!std::isfinite(number)) return null(unit, source, "not a finite number");
  Value value;
  value.number_ = number;
  value.unit_ = unit;
  value.source_ = source;
  value.reason_.clear();
  return value;
}

Value Value::null(Unit unit, Source source, std::string reason) {
  Value value;
  value.unit_ = unit;
  value.source_ = source;
  value.reason_ = reason.empty() ? "unknown" : std::move(reason);
  return value;
}

std::optional<std::uint64_t> Value::integer() const noexcept {
  const auto* number = std::get_if<std::uint64_t>(&number_);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

std::optional<double> Value::real() const noexcept {
  if (const auto* number = std::get_if<std::uint64_t>(&number_)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<double>(&number_)) return *number;
  return std::nullopt;
}

namespace {

// minuend - subtrahend, null with `negative` when that would be below zero.
Value subtract(const Value& minuend, const Value& subtrahend, const char* negative) {
  const auto fail = [&](std::string reason) {
    return Value::null(minuend.unit(), minuend.source(), std::move(reason));
  };
  if (!minuend.known()) return fail(minuend.reason());
  if (!subtrahend.known()) return fail(subtrahend.reason());
  if (minuend.unit() != subtrahend.unit()) return fail("units differ");
  const auto a = minuend.integer();
  const auto b = subtrahend.integer();
  if (a && b) {
    if (*a < *b) return fail(negative);
    return Value::number(*a - *b, minuend.unit(), minuend.source());
  }
  const double result = *minuend.real() - *subtrahend.real();
  if (result < 0) return fail(negative);
  return Value::number(result, minuend.unit(), minuend.source());
}

}  // namespace

Value difference(const Value& before, const Value& after) {
  return subtract(after, before, "went backwards");
}

Value remainder(const Value& whole, const Value& parts) {
  return subtract(whole, parts, "parts exceed the whole");
}

Value sum(const Value& a, const Value& b) {
  const auto fail = [&](std::string reason) { return Value::null(a.unit(), a.source(), std::move(reason)); };
  if (!a.known()) return fail(a.reason());
  if (!b.known()) return fail(b.reason());
  if (a.unit() != b.unit()) return fail("units differ");
  const auto x = a.integer();
  const auto y = b.integer();
  if (x && y) {
    if (*x > std::numeric_limits<std::uint64_t>::max() - *y) return fail("sum exceeds 64 bits");
    return Value::number(*x + *y, a.unit(), a.source());
  }
  return Value::number(*a.real() + *b.real(), a.unit(), a.source());
}

nlohmann::ordered_json to_json(const Value& value) {
  nlohmann::ordered_json json;
  if (const auto integer = value.integer()) {
    json["value"] = *integer;
  } else if (const auto real = value.real()) {
    json["value"] = *real;
  } else {
    json["value"] = nullptr;
  }
  json["unit"] = name_of(value.unit());
  json["source"] = name_of(value.source());
  if (!value.known()) json["reason"] = value.reason();
  return json;
}

}  // namespace vmm::stats
