// SPDX-License-Identifier: Apache-2.0
// Writes synthetic statistics files (KVM API 4.133) for the tests, sound or not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "stats/kvm_stats.hpp"

namespace vmm::stats::test {

inline constexpr std::uint32_t kCumulative = 0x000;
inline constexpr std::uint32_t kInstant = 0x001;
inline constexpr std::uint32_t kPeak = 0x002;
inline constexpr std::uint32_t kLinear = 0x003;
inline constexpr std::uint32_t kLog = 0x004;
inline constexpr std::uint32_t kUnitBytes = 0x010;
inline constexpr std::uint32_t kUnitSeconds = 0x020;
inline constexpr std::uint32_t kUnitBoolean = 0x040;

struct Entry {
  std::string name;
  std::uint32_t flags = kCumulative;
  std::int16_t exponent = 0;
  std::vector<std::uint64_t> values;
  std::uint32_t bucket_size = 0;
  // Overrides, for files that lie.
  int size = -1;
  std::int64_t offset = -1;
};

struct File {
  std::uint32_t name_size = 48;
  std::vector<Entry> entries;
  std::uint32_t id_offset = 24;
  bool data_first = false;  // the data block before the descriptors: offsets decide, not order
  std::int64_t claimed_entries = -1;

  std::vector<std::byte> bytes() const {
    std::vector<std::uint64_t> data;
    std::vector<std::uint32_t> offsets;
    for (const Entry& entry : entries) {
      offsets.push_back(static_cast<std::uint32_t>(data.size() * 8));
      data.insert(data.end(), entry.values.begin(), entry.values.end());
    }
    const std::uint32_t stride = 16 + name_size;
    const auto descriptors_bytes = static_cast<std::uint32_t>(entries.size()) * stride;
    const auto data_bytes = static_cast<std::uint32_t>(data.size() * 8);
    const std::uint32_t body = 24 + name_size;
    const std::uint32_t desc_offset = data_first ? body + data_bytes : body;
    const std::uint32_t data_offset = data_first ? body : body + descriptors_bytes;
    std::vector<std::byte> file(body + descriptors_bytes + data_bytes);
    const auto put = [&](std::size_t at, const auto& value) { std::memcpy(file.data() + at, &value, sizeof value); };
    const auto claimed =
        static_cast<std::uint32_t>(claimed_entries < 0 ? static_cast<std::int64_t>(entries.size()) : claimed_entries);
    put(4, name_size);
    put(8, claimed);
    put(12, id_offset);
    put(16, desc_offset);
    put(20, data_offset);
    const std::string id = "kvm-7/vcpu-1";
    std::memcpy(file.data() + 24, id.data(), std::min<std::size_t>(id.size(), name_size));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Entry& entry = entries[i];
      const std::size_t at = desc_offset + i * stride;
      put(at, entry.flags);
      put(at + 4, entry.exponent);
      put(at + 6, static_cast<std::uint16_t>(entry.size < 0 ? static_cast<int>(entry.values.size()) : entry.size));
      put(at + 8, entry.offset < 0 ? offsets[i] : static_cast<std::uint32_t>(entry.offset));
      put(at + 12, entry.bucket_size);
      std::memcpy(file.data() + at + 16, entry.name.data(), std::min<std::size_t>(entry.name.size(), name_size));
    }
    if (!data.empty()) std::memcpy(file.data() + data_offset, data.data(), data_bytes);
    return file;
  }
};

// At most `chunk` bytes a read, as a file may do.
inline ReadAt reader(std::vector<std::byte> file, std::size_t chunk = 1 << 20) {
  return [file = std::move(file), chunk](std::uint64_t offset, std::span<std::byte> into) -> std::int64_t {
    if (offset >= file.size()) return 0;
    const std::size_t count = std::min({into.size(), file.size() - static_cast<std::size_t>(offset), chunk});
    std::memcpy(into.data(), file.data() + offset, count);
    return static_cast<std::int64_t>(count);
  };
}

inline KvmStatsSnapshot read_file(const File& file) {
  const auto source = reader(file.bytes());
  return read_stats(parse_stats_layout(source), source);
}

}  // namespace vmm::stats::test
