// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace vmm::devices {

// A device sees an offset in its range and bytes, never KVM. Accesses come from any vCPU thread: a device with state
// locks it itself. An access never fails; what a device does not know reads as all ones and ignores writes, like an
// empty bus.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // `data` is 1, 2, 4 or 8 bytes, little endian.
  virtual void read(std::uint64_t offset, std::span<std::byte> data) = 0;
  virtual void write(std::uint64_t offset, std::span<const std::byte> data) = 0;

 protected:
  Device() = default;
};

// Sets the level of an interrupt line.
using InterruptLine = std::function<void(bool level)>;

// The value of a little-endian access, and back; bytes beyond the value are cleared.
std::uint64_t load_little_endian(std::span<const std::byte> data) noexcept;
void store_little_endian(std::span<std::byte> data, std::uint64_t value) noexcept;
void fill_ones(std::span<std::byte> data) noexcept;

}  // namespace vmm::devices
