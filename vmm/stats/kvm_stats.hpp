// SPDX-License-Identifier: Apache-2.0
// The binary statistics of a VM or vCPU (KVM API 4.133, KVM_GET_STATS_FD; layout in linux/kvm.h). The list differs per
// kernel, so everything is looked up by name and what is unknown is carried along. The file is treated as hostile: no
// offset, size or count in it is believed before it is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "stats/histogram.hpp"
#include "stats/value.hpp"

namespace vmm::stats {

// As pread(2): fills `into` from `offset`; returns the bytes read (short at the end), or -errno.
using ReadAt = std::function<std::int64_t(std::uint64_t offset, std::span<std::byte> into)>;

enum class StatKind { kCumulative, kInstant, kPeak, kLinearHistogram, kLog2Histogram, kUnknown };

struct StatDescriptor {
  std::string name;
  StatKind kind = StatKind::kUnknown;
  std::uint32_t flags = 0;  // as in the file: type, unit, base
  std::int16_t exponent = 0;
  std::uint16_t size = 0;    // number of 64-bit values
  std::uint64_t offset = 0;  // in the file, bytes
  std::uint32_t bucket_size = 0;
  std::string problem;  // not empty: this entry cannot be read (bad offset, size 0 …)
  bool operator==(const StatDescriptor&) const = default;
};

// Sanity limits; far above any kernel's (6.12: 48-byte names, about 50 descriptors of at most 32 values).
inline constexpr std::uint32_t kMaxStatNameBytes = 1024;
inline constexpr std::uint32_t kMaxStatDescriptors = 4096;
inline constexpr std::uint16_t kMaxStatValues = 1024;
inline constexpr std::uint64_t kMaxStatFileBytes = 16 << 20;

struct StatsLayout {
  std::string id;  // "kvm-1234/vcpu-0"
  std::vector<StatDescriptor> descriptors;
  std::string problem;  // not empty: header or descriptors unusable, `descriptors` empty
};

// Never throws for any content of the file.
StatsLayout parse_stats_layout(const ReadAt& read_at);

// A statistic at one instant. Exactly one of the two is meaningful, by kind.
struct StatReading {
  StatDescriptor descriptor;
  std::vector<std::uint64_t> values;
  std::string problem;  // not empty: values are void
};

// All statistics of one vCPU at one instant: a plain value.
struct KvmStatsSnapshot {
  std::map<std::string, StatReading, std::less<>> readings;
  std::string problem;  // not empty: nothing could be read

  // A counter by name: null "this kernel's KVM has no statistic 'x'" when it is absent, "is a histogram" when it is
  // one.
  Value value(std::string_view name) const;
  Histogram histogram(std::string_view name) const;
};

KvmStatsSnapshot read_stats(const StatsLayout& layout, const ReadAt& read_at);

// Value or histogram of one reading; unit and scale from the descriptor's flags (seconds with exponent -9 are "ns").
bool is_histogram(const StatDescriptor& descriptor) noexcept;
Value to_value(const StatReading& reading);
Histogram to_histogram(const StatReading& reading);

// The live file of one vCPU (or VM). Reading never resets anything and does not stop the vCPU: for numbers of one
// instant stop it first.
class KvmStatsReader {
 public:
  // `fd` from KVM_GET_STATS_FD. Never throws: an unusable file shows in layout().problem and in every snapshot.
  explicit KvmStatsReader(base::UniqueFd fd);
  // No file at all, e.g. a KVM without KVM_CAP_BINARY_STATS_FD: every value is null with `reason`.
  static KvmStatsReader unavailable(std::string reason);

  const StatsLayout& layout() const noexcept { return layout_; }
  KvmStatsSnapshot read() const;

 private:
  KvmStatsReader() = default;
  base::UniqueFd fd_;
  StatsLayout layout_;
};

}  // namespace vmm::stats
