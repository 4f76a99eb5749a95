// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "devices/device.hpp"

namespace vmm::devices {

// ACPI fixed hardware: the PM1a event block (offset 0, status and enable, 2 bytes each) and control block (offset 4, 2
// bytes) side by side, six ports (ACPI 6.5, 4.8.3.1 and 4.8.3.2). No event ever comes; the one thing it does is S5.
class AcpiPowerManagement final : public Device {
 public:
  // `power_off` is called, perhaps more than once, when SLP_EN is written with `sleep_type_s5`.
  AcpiPowerManagement(std::uint8_t sleep_type_s5, std::function<void()> power_off);
  void read(std::uint64_t offset, std::span<std::byte> data) override;
  void write(std::uint64_t offset, std::span<const std::byte> data) override;

 private:
  std::mutex mutex_;
  std::uint8_t sleep_type_s5_;
  std::function<void()> power_off_;
  std::uint16_t enable_ = 0;
  std::uint16_t control_ = 1;  // SCI_EN: the machine is in ACPI mode from the start
};

// One port; a write of `trigger` calls `reset`. Serves the FADT's reset register and the keyboard controller's pulse.
class ResetPort final : public Device {
 public:
  ResetPort(std::uint8_t trigger, std::uint8_t reads_as, std::function<void()> reset);
  void read(std::uint64_t offset, std::span<std::byte> data) override;
  void write(std::uint64_t offset, std::span<const std::byte> data) override;

 private:
  std::uint8_t trigger_;
  std::uint8_t reads_as_;
  std::function<void()> reset_;
};

// One port of 1 to 4 bytes: a payload writes its exit value and is over.
class PayloadExit final : public Device {
 public:
  explicit PayloadExit(std::function<void(std::uint32_t)> exit);
  void read(std::uint64_t offset, std::span<std::byte> data) override;
  void write(std::uint64_t offset, std::span<const std::byte> data) override;

 private:
  std::function<void(std::uint32_t)> exit_;
};

}  // namespace vmm::devices
