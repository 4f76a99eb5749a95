// SPDX-License-Identifier: Apache-2.0
#include "devices/serial.hpp"

#include <algorithm>

namespace vmm::devices {
namespace {

// Registers by offset (PC16550D, table II); DLAB in the line control register switches 0 and 1 to the divisor.
enum Register : std::uint64_t {
  kData,
  kInterruptEnable,
  kInterruptId,
  kLineControl,
  kModemControl,
  kLineStatus,
  kModemStatus,
  kScratch
};

constexpr std::uint8_t kDlab = 0x80;
constexpr std::uint8_t kIerReceive = 0x01;
constexpr std::uint8_t kIerTransmit = 0x02;
constexpr std::uint8_t kIerMask = 0x0f;
constexpr std::uint8_t kIirNone = 0x01;
constexpr std::uint8_t kIirTransmit = 0x02;
constexpr std::uint8_t kIirReceive = 0x04;
constexpr std::uint8_t kIirFifo = 0xc0;
constexpr std::uint8_t kFcrEnable = 0x01;
constexpr std::uint8_t kFcrClearReceive = 0x02;
constexpr std::uint8_t kMcrMask = 0x1f;
constexpr std::uint8_t kMcrLoop = 0x10;
constexpr std::uint8_t kLsrDataReady = 0x01;
constexpr std::uint8_t kLsrTransmitterEmpty = 0x60;
constexpr std::uint8_t kMsrConnected = 0xb0;  // carrier, data set ready, clear to send
constexpr std::size_t kReceiveLimit = 64;

}  // namespace

Serial::Serial(Sink sink, InterruptLine interrupt) : sink_(std::move(sink)), interrupt_(std::move(interrupt)) {}

std::uint8_t Serial::interrupt_identification() const {
  if ((interrupt_enable_ & kIerReceive) != 0 && !received_.empty()) return kIirReceive;
  if ((interrupt_enable_ & kIerTransmit) != 0 && transmit_interrupt_) return kIirTransmit;
  return kIirNone;
}

void Serial::update_interrupt() {
  const bool level = interrupt_identification() != kIirNone;
  if (level != line_level_) {
    line_level_ = level;
    interrupt_(level);
  }
}

void Serial::read(std::uint64_t offset, std::span<std::byte> data) {
  const std::lock_guard lock(mutex_);
  std::uint8_t value = 0xff;
  switch (offset) {
    case kData:
      if ((line_control_ & kDlab) != 0) {
        value = static_cast<std::uint8_t>(divisor_ & 0xff);
      } else {
        value = 0;
        if (!received_.empty()) {
          value = received_.front();
          received_.pop_front();
        }
      }
      break;
    case kInterruptEnable:
      value = (line_control_ & kDlab) != 0 ? static_cast<std::uint8_t>(divisor_ >> 8) : interrupt_enable_;
      break;
    case kInterruptId: {
      const std::uint8_t id = interrupt_identification();
      if (id == kIirTransmit) transmit_interrupt_ = false;  // reading it acknowledges this one
      value = static_cast<std::uint8_t>(id | ((fifo_control_ & kFcrEnable) != 0 ? kIirFifo : 0));
      break;
    }
    case kLineControl:
      value = line_control_;
      break;
    case kModemControl:
      value = modem_control_;
      break;
    case kLineStatus:
      value = static_cast<std::uint8_t>(kLsrTransmitterEmpty | (received_.empty() ? 0 : kLsrDataReady));
      break;
    case kModemStatus:
      // In loop mode the modem outputs are wired to its inputs; drivers probe for a UART that way.
      value = (modem_control_ & kMcrLoop) == 0
                  ? kMsrConnected
                  : static_cast<std::uint8_t>(((modem_control_ & 0x0c) << 4) | ((modem_control_ & 0x02) << 3) |
                                              ((modem_control_ & 0x01) << 5));
      break;
    case kScratch:
      value = scratch_;
      break;
    default:
      break;
  }
  store_little_endian(data, value);
  update_interrupt();
}

void Serial::write(std::uint64_t offset, std::span<const std::byte> data) {
  const auto value = static_cast<std::uint8_t>(load_little_endian(data) & 0xff);
  const std::lock_guard lock(mutex_);
  switch (offset) {
    case kData:
      if ((line_control_ & kDlab) != 0) {
        divisor_ = static_cast<std::uint16_t>((divisor_ & 0xff00) | value);
      } else if ((modem_control_ & kMcrLoop) != 0) {
        if (received_.size() < kReceiveLimit) received_.push_back(value);
      } else {
        sink_(value);
        transmit_interrupt_ = true;
      }
      break;
    case kInterruptEnable:
      if ((line_control_ & kDlab) != 0) {
        divisor_ = static_cast<std::uint16_t>((divisor_ & 0x00ff) | (value << 8));
      } else {
        // Enabling the transmit interrupt with an empty transmitter raises it at once (PC16550D 8.6.4).
        if ((value & kIerTransmit) != 0 && (interrupt_enable_ & kIerTransmit) == 0) transmit_interrupt_ = true;
        interrupt_enable_ = value & kIerMask;
      }
      break;
    case kInterruptId:
      fifo_control_ = value;
      if ((value & kFcrClearReceive) != 0) received_.clear();
      break;
    case kLineControl:
      line_control_ = value;
      break;
    case kModemControl:
      modem_control_ = value & kMcrMask;
      break;
    case kScratch:
      scratch_ = value;
      break;
    default:
      break;
  }
  update_interrupt();
}

std::size_t Serial::receive(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t taken = std::min(bytes.size(), kReceiveLimit - std::min(kReceiveLimit, received_.size()));
  for (const char byte : bytes.substr(0, taken)) received_.push_back(static_cast<std::uint8_t>(byte));
  update_interrupt();
  return taken;
}

}  // namespace vmm::devices
