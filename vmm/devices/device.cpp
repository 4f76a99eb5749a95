// SPDX-License-Identifier: Apache-2.0
#include "devices/device.hpp"

#include <algorithm>
#include <cstddef>

namespace vmm::devices {

std::uint64_t load_little_endian(std::span<const std::byte> data) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(data.size(), 8); ++i) {
    value |= static_cast<std::uint64_t>(data[i]) << (8 * i);
  }
  return value;
}

void store_little_endian(std::span<std::byte> data, std::uint64_t value) noexcept {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = i < 8 ? static_cast<std::byte>((value >> (8 * i)) & 0xff) : std::byte{0};
  }
}

void fill_ones(std::span<std::byte> data) noexcept {
  std::ranges::fill(data, std::byte{0xff});
}

}  // namespace vmm::devices
