// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "devices/device.hpp"

namespace vmm::devices {

// The second channel: whole lines between the VMM and the guest's agent (or a payload), twelve ports.
//   +0: write 1, 2 or 4 bytes of a line to the host (every write is an exit, so four at once) / read a byte of the
//   reply (0
//       when there is none)
//   +4, 32 bit: bytes of reply pending
//   +8, 32 bit: the magic that says that this channel is here
// A line is handled within the write of its newline, so the guest's next instruction sees its effect: that is what
// makes a mark exact. One line at a time; lines of two vCPUs must not be interleaved by the guest (they would be one
// garbled line, which the handler refuses).
class AgentChannel final : public Device {
 public:
  static constexpr std::uint16_t kPorts = 12;
  static constexpr std::uint32_t kMagic = 0x314D4D56;  // "VMM1"
  static constexpr std::size_t kLineLimitBytes = 65536;

  // Called with a line without its newline; `complete` is false when the line was cut at kLineLimitBytes. Returns the
  // reply (a line with its newline, or nothing). Runs in the thread of the writing vCPU.
  using Handler = std::function<std::string(std::string_view line, bool complete)>;
  explicit AgentChannel(Handler handler);

  void read(std::uint64_t offset, std::span<std::byte> data) override;
  void write(std::uint64_t offset, std::span<const std::byte> data) override;

 private:
  void take(char byte);

  std::mutex mutex_;
  Handler handler_;
  std::string line_;
  bool complete_ = true;
  std::string reply_;
  std::size_t reply_position_ = 0;
};

}  // namespace vmm::devices
