// SPDX-License-Identifier: Apache-2.0
#include "agent/link.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/io.h>

namespace guest {
namespace {

constexpr std::uint16_t kData = 0xE00;
constexpr std::uint16_t kPending = 0xE04;
constexpr std::uint16_t kMagic = 0xE08;
constexpr std::uint16_t kPorts = 12;
constexpr std::uint32_t kMagicValue = 0x314D4D56;  // "VMM1", little endian
constexpr std::size_t kReplyBytesMaximum = 65536;

}  // namespace

std::optional<PortLink> PortLink::open(std::string& why) {
  if (ioperm(kData, kPorts, 1) != 0) {
    why = std::string("ioperm: ") + std::strerror(errno) + " (CONFIG_X86_IOPL_IOPERM)";
    return std::nullopt;
  }
  if (inl(kMagic) != kMagicValue) {
    why = "no VMM answers at port 0xe08";
    return std::nullopt;
  }
  return PortLink();
}

std::string PortLink::exchange(std::string_view line) {
  // Every write is an exit of the vCPU that is being measured: four bytes at once.
  const std::size_t words = line.size() / 4;
  outsl(kData, line.data(), words);
  outsb(kData, line.data() + 4 * words, line.size() % 4);
  outb('\n', kData);
  std::uint32_t pending = inl(kPending);
  if (pending > kReplyBytesMaximum) pending = kReplyBytesMaximum;
  std::string reply(pending, '\0');
  if (pending != 0) insb(kData, reply.data(), pending);
  while (!reply.empty() && reply.back() == '\n') reply.pop_back();
  return reply;
}

}  // namespace guest
