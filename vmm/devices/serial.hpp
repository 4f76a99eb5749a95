// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "devices/device.hpp"

namespace vmm::devices {

// A 16550A UART (National PC16550D data sheet) whose line is infinitely fast: a byte is sent the moment it is written.
// Eight ports.
class Serial final : public Device {
 public:
  using Sink = std::function<void(std::uint8_t)>;
  // `sink` receives each byte the guest sends, in the writing vCPU's thread. `interrupt` is the UART's line.
  Serial(Sink sink, InterruptLine interrupt);

  void read(std::uint64_t offset, std::span<std::byte> data) override;
  void write(std::uint64_t offset, std::span<const std::byte> data) override;

  // Input for the guest, from another thread. Returns how many bytes were taken: what does not fit the receive buffer
  // stays with the caller.
  std::size_t receive(std::string_view bytes);

 private:
  void update_interrupt();
  std::uint8_t interrupt_identification() const;

  std::mutex mutex_;
  Sink sink_;
  InterruptLine interrupt_;
  std::deque<std::uint8_t> received_;
  std::uint16_t divisor_ = 12;  // 9600 baud, as after power-up on a PC
  std::uint8_t interrupt_enable_ = 0;
  std::uint8_t fifo_control_ = 0;
  std::uint8_t line_control_ = 0x03;
  std::uint8_t modem_control_ = 0;
  std::uint8_t scratch_ = 0;
  bool transmit_interrupt_ = false;
  bool line_level_ = false;
};

}  // namespace vmm::devices
