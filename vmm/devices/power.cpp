// SPDX-License-Identifier: Apache-2.0
#include "devices/power.hpp"

namespace vmm::devices {
namespace {

// PM1 control register (ACPI 6.5, table 4.15).
constexpr std::uint16_t kSciEnable = 1U << 0;
constexpr std::uint16_t kSleepEnable = 1U << 13;
constexpr unsigned kSleepTypeShift = 10;
constexpr std::uint16_t kSleepTypeMask = 7;

}  // namespace

AcpiPowerManagement::AcpiPowerManagement(std::uint8_t sleep_type_s5, std::function<void()> power_off)
    : sleep_type_s5_(sleep_type_s5), power_off_(std::move(power_off)) {}

void AcpiPowerManagement::read(std::uint64_t offset, std::span<std::byte> data) {
  const std::lock_guard lock(mutex_);
  // The six ports as bytes: status (always 0), enable, control.
  const std::uint64_t block = (std::uint64_t{enable_} << 16) | (std::uint64_t{control_} << 32);
  store_little_endian(data, offset < 6 ? block >> (8 * offset) : 0);
}

void AcpiPowerManagement::write(std::uint64_t offset, std::span<const std::byte> data) {
  const auto value = static_cast<std::uint16_t>(load_little_endian(data) & 0xffff);
  bool off = false;
  {
    const std::lock_guard lock(mutex_);
    if (offset == 2) enable_ = value;
    if (offset == 4) {
      off = (value & kSleepEnable) != 0 && ((value >> kSleepTypeShift) & kSleepTypeMask) == sleep_type_s5_;
      control_ = static_cast<std::uint16_t>((value & ~kSleepEnable) | kSciEnable);  // SLP_EN reads as zero
    }
  }
  if (off) power_off_();
}

ResetPort::ResetPort(std::uint8_t trigger, std::uint8_t reads_as, std::function<void()> reset)
    : trigger_(trigger), reads_as_(reads_as), reset_(std::move(reset)) {}

void ResetPort::read(std::uint64_t /*offset*/, std::span<std::byte> data) {
  store_little_endian(data, reads_as_);
}

void ResetPort::write(std::uint64_t /*offset*/, std::span<const std::byte> data) {
  if ((load_little_endian(data) & 0xff) == trigger_) reset_();
}

PayloadExit::PayloadExit(std::function<void(std::uint32_t)> exit) : exit_(std::move(exit)) {}

void PayloadExit::read(std::uint64_t /*offset*/, std::span<std::byte> data) {
  fill_ones(data);
}

void PayloadExit::write(std::uint64_t /*offset*/, std::span<const std::byte> data) {
  exit_(static_cast<std::uint32_t>(load_little_endian(data)));
}

}  // namespace vmm::devices
