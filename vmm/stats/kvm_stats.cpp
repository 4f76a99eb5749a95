// SPDX-License-Identifier: Apache-2.0
#include "stats/kvm_stats.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>

#include "base/error.hpp"

namespace vmm::stats {
namespace {

// linux/kvm.h, struct kvm_stats_header and struct kvm_stats_desc. Written out here because the layer stats knows the
// file's format, not KVM's headers; both are little-endian as the machine.
struct Header {
  std::uint32_t flags;
  std::uint32_t name_size;
  std::uint32_t num_desc;
  std::uint32_t id_offset;
  std::uint32_t desc_offset;
  std::uint32_t data_offset;
};
static_assert(sizeof(Header) == 24);

struct Descriptor {
  std::uint32_t flags;
  std::int16_t exponent;
  std::uint16_t size;
  std::uint32_t offset;
  std::uint32_t bucket_size;
};
static_assert(sizeof(Descriptor) == 16);

constexpr std::uint32_t kTypeMask = 0x00f;
constexpr std::uint32_t kUnitShift = 4;
constexpr std::uint32_t kBaseShift = 8;
constexpr std::uint32_t kUnitNone = 0;
constexpr std::uint32_t kUnitBytes = 1;
constexpr std::uint32_t kUnitSeconds = 2;
constexpr std::uint32_t kUnitCycles = 3;
constexpr std::uint32_t kUnitBoolean = 4;
constexpr std::uint32_t kBasePow10 = 0;
constexpr std::uint32_t kBasePow2 = 1;

// Empty on success, else what went wrong.
std::string read_exactly(const ReadAt& read_at, std::uint64_t offset, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const std::int64_t got = read_at(offset + done, into.subspan(done));
    if (got == -EINTR) continue;
    if (got < 0) return fmt::format("reading it failed: {}", base::errno_text(static_cast<int>(-got)));
    if (got == 0) return fmt::format("it ends at byte {} of {}", offset + done, offset + into.size());
    if (static_cast<std::uint64_t>(got) > into.size() - done) return "the reader returned more than was asked for";
    done += static_cast<std::size_t>(got);
  }
  return {};
}

StatKind kind_of(std::uint32_t flags) noexcept {
  switch (flags & kTypeMask) {
    case 0:
      return StatKind::kCumulative;
    case 1:
      return StatKind::kInstant;
    case 2:
      return StatKind::kPeak;
    case 3:
      return StatKind::kLinearHistogram;
    case 4:
      return StatKind::kLog2Histogram;
    default:
      return StatKind::kUnknown;
  }
}

// A name as the file has it: up to its NUL, or all of it; bytes that could disturb a terminal or JSON become '?'.
std::string clean_name(std::span<const char> bytes) {
  const auto end = std::ranges::find(bytes, '\0');
  std::string name(bytes.begin(), end);
  for (char& c : name) {
    if (c < 0x21 || c > 0x7e) c = '?';
  }
  return name;
}

struct Scaled {
  Unit unit = Unit::kCount;
  std::string problem;
};

// The unit a descriptor's flags and exponent mean. Only those that a Value can express.
Scaled unit_of(const StatDescriptor& descriptor) {
  const std::uint32_t unit = (descriptor.flags >> kUnitShift) & 0xf;
  const std::uint32_t base = (descriptor.flags >> kBaseShift) & 0xf;
  const std::int16_t exponent = descriptor.exponent;
  const auto odd = [&]() {
    return Scaled{Unit::kCount,
                  fmt::format("its unit is unknown (flags {:#x}, exponent {})", descriptor.flags, exponent)};
  };
  if (base != kBasePow10 && base != kBasePow2) return odd();
  if (unit == kUnitSeconds && base == kBasePow10) {
    if (exponent == -9) return {Unit::kNanoseconds, {}};
    if (exponent == -6) return {Unit::kMicroseconds, {}};
    if (exponent == 0) return {Unit::kSeconds, {}};
    return odd();
  }
  if (exponent != 0) return odd();
  switch (unit) {
    case kUnitNone:
      return {Unit::kCount, {}};
    case kUnitBytes:
      return {Unit::kBytes, {}};
    case kUnitCycles:
      return {Unit::kCycles, {}};
    case kUnitBoolean:
      return {Unit::kBoolean, {}};
    default:
      return odd();
  }
}

std::string problem_of(const StatDescriptor& descriptor) {
  if (descriptor.name.empty()) return "it has no name";
  if (descriptor.kind == StatKind::kUnknown) return fmt::format("its kind is unknown (flags {:#x})", descriptor.flags);
  if (descriptor.size == 0) return "it has no values (size 0)";
  if (descriptor.size > kMaxStatValues) {
    return fmt::format("it claims {} values, more than {}", descriptor.size, kMaxStatValues);
  }
  if (!is_histogram(descriptor) && descriptor.size != 1) {
    return fmt::format("it is a counter with {} values", descriptor.size);
  }
  if (descriptor.kind == StatKind::kLinearHistogram && descriptor.bucket_size == 0) return "its bucket size is 0";
  if (descriptor.offset + descriptor.size * sizeof(std::uint64_t) > kMaxStatFileBytes) {
    return fmt::format("its offset {} is beyond {}", descriptor.offset, kMaxStatFileBytes);
  }
  return unit_of(descriptor).problem;
}

std::string statistic_problem(std::string_view name, std::string_view problem) {
  return fmt::format("KVM's statistic '{}' cannot be read: {}", name, problem);
}

}  // namespace

bool is_histogram(const StatDescriptor& descriptor) noexcept {
  return descriptor.kind == StatKind::kLinearHistogram || descriptor.kind == StatKind::kLog2Histogram;
}

StatsLayout parse_stats_layout(const ReadAt& read_at) {
  const auto fail = [](std::string problem) {
    StatsLayout layout;
    layout.problem = "KVM's statistics file is unusable: " + std::move(problem);
    return layout;
  };
  Header header{};
  if (auto problem = read_exactly(read_at, 0, std::as_writable_bytes(std::span(&header, 1))); !problem.empty()) {
    return fail(problem);
  }
  if (header.name_size == 0 || header.name_size > kMaxStatNameBytes) {
    return fail(fmt::format("names of {} bytes (1 to {} are sane)", header.name_size, kMaxStatNameBytes));
  }
  if (header.num_desc > kMaxStatDescriptors) {
    return fail(fmt::format("{} descriptors (at most {} are sane)", header.num_desc, kMaxStatDescriptors));
  }
  StatsLayout layout;
  std::vector<char> name(header.name_size);
  // The id is for people only: without it the rest still works.
  if (header.id_offset <= kMaxStatFileBytes &&
      read_exactly(read_at, header.id_offset, std::as_writable_bytes(std::span(name))).empty()) {
    layout.id = clean_name(name);
  }
  const std::uint64_t stride = sizeof(Descriptor) + header.name_size;
  if (header.desc_offset + stride * header.num_desc > kMaxStatFileBytes) {
    return fail(fmt::format("descriptors at {} are beyond {}", header.desc_offset, kMaxStatFileBytes));
  }
  layout.descriptors.reserve(header.num_desc);
  for (std::uint32_t index = 0; index < header.num_desc; ++index) {
    const std::uint64_t at = header.desc_offset + stride * index;
    Descriptor raw{};
    auto problem = read_exactly(read_at, at, std::as_writable_bytes(std::span(&raw, 1)));
    if (problem.empty()) {
      problem = read_exactly(read_at, at + sizeof raw, std::as_writable_bytes(std::span(name)));
    }
    if (!problem.empty()) return fail(fmt::format("descriptor {} of {}: {}", index, header.num_desc, problem));
    StatDescriptor descriptor;
    descriptor.name = clean_name(name);
    descriptor.kind = kind_of(raw.flags);
    descriptor.flags = raw.flags;
    descriptor.exponent = raw.exponent;
    descriptor.size = raw.size;
    descriptor.offset = std::uint64_t{header.data_offset} + raw.offset;
    descriptor.bucket_size = raw.bucket_size;
    descriptor.problem = problem_of(descriptor);
    layout.descriptors.push_back(std::move(descriptor));
  }
  return layout;
}

KvmStatsSnapshot read_stats(const StatsLayout& layout, const ReadAt& read_at) {
  KvmStatsSnapshot snapshot;
  snapshot.problem = layout.problem;
  if (!layout.problem.empty()) return snapshot;

  // One read of the whole data block where possible: the file has some 50 values, and a read for each would double the
  // cost of a mark. The block spans from the first to the last readable value.
  std::uint64_t begin = kMaxStatFileBytes;
  std::uint64_t end = 0;
  for (const auto& descriptor : layout.descriptors) {
    if (!descriptor.problem.empty()) continue;
    begin = std::min(begin, descriptor.offset);
    end = std::max(end, descriptor.offset + descriptor.size * sizeof(std::uint64_t));
  }
  std::vector<std::byte> block;
  if (begin < end && end - begin <= (std::uint64_t{1} << 16)) {
    block.resize(end - begin);
    if (!read_exactly(read_at, begin, block).empty()) block.clear();
  }

  for (const auto& descriptor : layout.descriptors) {
    StatReading reading;
    reading.descriptor = descriptor;
    reading.problem = descriptor.problem;
    if (reading.problem.empty()) {
      reading.values.resize(descriptor.size);
      const auto into = std::as_writable_bytes(std::span(reading.values));
      if (!block.empty()) {
        std::memcpy(into.data(), block.data() + (descriptor.offset - begin), into.size());
      } else {
        reading.problem = read_exactly(read_at, descriptor.offset, into);
      }
      if (!reading.problem.empty()) reading.values.clear();
    }
    std::string name = descriptor.name.empty() ? "?" : descriptor.name;
    const auto [position, inserted] = snapshot.readings.try_emplace(std::move(name), reading);
    if (!inserted) {
      // Two of one name: neither can be believed.
      position->second.values.clear();
      position->second.problem = "its name appears twice";
    }
  }
  return snapshot;
}

Value to_value(const StatReading& reading) {
  const Unit unit = unit_of(reading.descriptor).unit;
  if (!reading.problem.empty()) {
    return Value::null(unit, Source::kKvmStats, statistic_problem(reading.descriptor.name, reading.problem));
  }
  if (is_histogram(reading.descriptor)) {
    return Value::null(unit, Source::kKvmStats, statistic_problem(reading.descriptor.name, "it is a histogram"));
  }
  return Value::number(reading.values.at(0), unit, Source::kKvmStats);
}

Histogram to_histogram(const StatReading& reading) {
  const Unit unit = unit_of(reading.descriptor).unit;
  if (!reading.problem.empty()) {
    return Histogram::null(unit, Source::kKvmStats, statistic_problem(reading.descriptor.name, reading.problem));
  }
  if (!is_histogram(reading.descriptor)) {
    return Histogram::null(unit, Source::kKvmStats, statistic_problem(reading.descriptor.name, "it is a counter"));
  }
  Histogram histogram;
  histogram.unit = unit;
  histogram.source = Source::kKvmStats;
  histogram.counts = reading.values;
  if (reading.descriptor.kind == StatKind::kLinearHistogram) {
    histogram.scale = Histogram::Scale::kLinear;
    histogram.bucket_size = reading.descriptor.bucket_size;
  }
  return histogram;
}

Value KvmStatsSnapshot::value(std::string_view name) const {
  if (!problem.empty()) return Value::null(Unit::kCount, Source::kKvmStats, problem);
  const auto found = readings.find(name);
  if (found == readings.end()) {
    return Value::null(Unit::kCount, Source::kKvmStats, fmt::format("this kernel's KVM has no statistic '{}'", name));
  }
  return to_value(found->second);
}

Histogram KvmStatsSnapshot::histogram(std::string_view name) const {
  if (!problem.empty()) return Histogram::null(Unit::kCount, Source::kKvmStats, problem);
  const auto found = readings.find(name);
  if (found == readings.end()) {
    return Histogram::null(Unit::kCount, Source::kKvmStats,
                           fmt::format("this kernel's KVM has no statistic '{}'", name));
  }
  return to_histogram(found->second);
}

namespace {

ReadAt reader_of(int fd) {
  return [fd](std::uint64_t offset, std::span<std::byte> into) -> std::int64_t {
    const ssize_t got = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    return got < 0 ? -errno : got;
  };
}

}  // namespace

KvmStatsReader::KvmStatsReader(base::UniqueFd fd)
    : fd_(std::move(fd)), layout_(parse_stats_layout(reader_of(fd_.get()))) {}

KvmStatsReader KvmStatsReader::unavailable(std::string reason) {
  KvmStatsReader reader;
  reader.layout_.problem = std::move(reason);
  return reader;
}

KvmStatsSnapshot KvmStatsReader::read() const {
  return read_stats(layout_, reader_of(fd_.get()));
}

}  // namespace vmm::stats
