// SPDX-License-Identifier: Apache-2.0
#include "devices/bus.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <stdexcept>

namespace vmm::devices {
namespace {

constexpr std::size_t kPorts = 65536;

}  // namespace

PortBus::PortBus() : index_(kPorts, 0) {}

Device& PortBus::add(std::uint16_t first, std::uint16_t count, std::unique_ptr<Device> device) {
  const auto begin = index_.begin() + first;
  if (count == 0 || first + std::size_t{count} > kPorts || slots_.size() >= std::numeric_limits<std::uint8_t>::max() ||
      std::any_of(begin, begin + count, [](std::uint8_t slot) { return slot != 0; })) {
    throw std::logic_error(fmt::format("ports {:#x}+{} cannot be given to a device", first, count));
  }
  slots_.push_back({first, std::move(device)});
  std::fill(begin, begin + count, static_cast<std::uint8_t>(slots_.size()));
  return *slots_.back().device;
}

const PortBus::Slot* PortBus::find(std::uint16_t port) const noexcept {
  const std::uint8_t slot = index_[port];
  return slot == 0 ? nullptr : &slots_[slot - 1U];
}

void PortBus::read(std::uint16_t port, std::span<std::byte> data) const {
  fill_ones(data);
  if (const Slot* slot = find(port)) slot->device->read(static_cast<std::uint64_t>(port - slot->first), data);
}

void PortBus::write(std::uint16_t port, std::span<const std::byte> data) const {
  if (const Slot* slot = find(port)) slot->device->write(static_cast<std::uint64_t>(port - slot->first), data);
}

Device& MmioBus::add(std::uint64_t first, std::uint64_t bytes, std::unique_ptr<Device> device) {
  const bool wraps = bytes == 0 || first > std::numeric_limits<std::uint64_t>::max() - (bytes - 1);
  const auto overlaps = [&](const Slot& slot) {
    return first <= slot.first + (slot.bytes - 1) && slot.first <= first + (bytes - 1);
  };
  if (wraps || std::ranges::any_of(slots_, overlaps)) {
    throw std::logic_error(fmt::format("MMIO range {:#x}+{:#x} cannot be given to a device", first, bytes));
  }
  const auto place = std::ranges::lower_bound(slots_, first, {}, &Slot::first);
  return *slots_.insert(place, Slot{first, bytes, std::move(device)})->device;
}

const MmioBus::Slot* MmioBus::find(std::uint64_t address, std::uint64_t bytes) const noexcept {
  auto slot = std::ranges::upper_bound(slots_, address, {}, &Slot::first);
  if (slot == slots_.begin()) return nullptr;
  --slot;
  const std::uint64_t offset = address - slot->first;
  const bool fits = offset < slot->bytes && bytes <= slot->bytes - offset;
  return fits ? &*slot : nullptr;
}

void MmioBus::read(std::uint64_t address, std::span<std::byte> data) const {
  fill_ones(data);
  if (const Slot* slot = find(address, data.size())) slot->device->read(address - slot->first, data);
}

void MmioBus::write(std::uint64_t address, std::span<const std::byte> data) const {
  if (const Slot* slot = find(address, data.size())) slot->device->write(address - slot->first, data);
}

}  // namespace vmm::devices
