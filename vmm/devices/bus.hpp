// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "devices/device.hpp"

namespace vmm::devices {

// The 65,536 ports of x86. Filled before the vCPUs start and only read afterwards, so it needs no lock; the lookup is
// one load. Owns its devices.
class PortBus {
 public:
  PortBus();

  // Gives `device` the ports [first, first + count). Throws std::logic_error when a port is taken.
  Device& add(std::uint16_t first, std::uint16_t count, std::unique_ptr<Device> device);

  // One access of data.size() bytes (1, 2 or 4). An access that begins at a port of no device reads ones.
  void read(std::uint16_t port, std::span<std::byte> data) const;
  void write(std::uint16_t port, std::span<const std::byte> data) const;

 private:
  struct Slot {
    std::uint16_t first;
    std::unique_ptr<Device> device;
  };
  const Slot* find(std::uint16_t port) const noexcept;

  std::vector<Slot> slots_;
  std::vector<std::uint8_t> index_;  // port -> slot + 1, 0 for none
};

// Memory-mapped devices: few, looked up by address in a sorted list. Filled before the vCPUs start.
class MmioBus {
 public:
  // Throws std::logic_error when the range wraps or overlaps another.
  Device& add(std::uint64_t first, std::uint64_t bytes, std::unique_ptr<Device> device);
  void read(std::uint64_t address, std::span<std::byte> data) const;
  void write(std::uint64_t address, std::span<const std::byte> data) const;

 private:
  struct Slot {
    std::uint64_t first;
    std::uint64_t bytes;
    std::unique_ptr<Device> device;
  };
  const Slot* find(std::uint64_t address, std::uint64_t bytes) const noexcept;
  std::vector<Slot> slots_;
};

}  // namespace vmm::devices
