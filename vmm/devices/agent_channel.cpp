// SPDX-License-Identifier: Apache-2.0
#include "devices/agent_channel.hpp"

namespace vmm::devices {
namespace {

constexpr std::uint64_t kData = 0;
constexpr std::uint64_t kPending = 4;
constexpr std::uint64_t kMagicOffset = 8;

}  // namespace

AgentChannel::AgentChannel(Handler handler) : handler_(std::move(handler)) {}

void AgentChannel::read(std::uint64_t offset, std::span<std::byte> data) {
  const std::lock_guard lock(mutex_);
  switch (offset) {
    case kData:
      store_little_endian(data, 0);
      if (reply_position_ < reply_.size()) {
        store_little_endian(data, static_cast<std::uint8_t>(reply_[reply_position_]));
        ++reply_position_;
      }
      break;
    case kPending:
      store_little_endian(data, reply_.size() - reply_position_);
      break;
    case kMagicOffset:
      store_little_endian(data, kMagic);
      break;
    default:
      break;  // the bus has filled it with ones
  }
}

void AgentChannel::write(std::uint64_t offset, std::span<const std::byte> data) {
  if (offset != kData) return;
  const std::lock_guard lock(mutex_);
  for (const std::byte byte : data) take(static_cast<char>(byte));
}

void AgentChannel::take(char byte) {
  if (byte != '\n') {
    if (line_.size() < kLineLimitBytes) {
      line_.push_back(byte);
    } else {
      complete_ = false;
    }
    return;
  }
  reply_ = handler_(line_, complete_);
  reply_position_ = 0;
  line_.clear();
  complete_ = true;
}

}  // namespace vmm::devices
