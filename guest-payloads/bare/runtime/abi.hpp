// SPDX-License-Identifier: Apache-2.0
// What the VMM and a payload agree on: entry registers (entry.S), this structure, and the ports.
#pragma once

#include <cstdint>

namespace payload {

inline constexpr std::uint32_t kInfoMagic = 0x464E4950;  // "PINF", little endian

struct Info {
  std::uint32_t magic;
  std::uint32_t vcpus;
  std::uint64_t memory_bytes;  // all of RAM; what does not fit below kHoleStart continues at kHoleEnd
  std::uint64_t tsc_khz;
  std::uint64_t args_address;  // NUL-terminated "key=value key=value"
  std::uint64_t args_bytes;    // without the NUL, or with it: the text ends at whichever comes first
};

inline constexpr std::uint64_t kHoleStart = 3ULL << 30;
inline constexpr std::uint64_t kHoleEnd = 4ULL << 30;

inline constexpr std::uint32_t kVcpusMaximum = 64;

inline constexpr std::uint16_t kExitPort = 0xF4;
inline constexpr std::uint16_t kConsolePort = 0x3F8;
inline constexpr std::uint16_t kChannelData = 0xE00;     // 8 bit
inline constexpr std::uint16_t kChannelPending = 0xE04;  // 32 bit: bytes of reply pending
inline constexpr std::uint16_t kChannelMagic = 0xE08;    // 32 bit
inline constexpr std::uint32_t kChannelMagicValue = 0x314D4D56;

// Values of the exit port. 0 and 1 are the VMM's own exit status; the others it reports by number.
enum Exit : std::uint32_t {
  kExitSuccess = 0,
  kExitFailed = 1,        // a check of the payload did not hold
  kExitBadArguments = 2,  // with an error line on the channel
  kExitException = 3,     // a CPU exception nobody expected; with an error line
  kExitNotOffered = 4,    // this virtual CPU lacks what the payload is about; with an error line
};

}  // namespace payload
