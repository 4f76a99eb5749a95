// SPDX-License-Identifier: Apache-2.0
// Writes lines as fast as the port takes them, never looking whether the UART is ready, then ends well.
// Arguments: lines=N (10000), line_bytes=N (80, with the newline), target=console|channel. A line to the channel
// is no JSON, and longer than the channel takes where line_bytes says so.

#include "runtime/runtime.hpp"

namespace payload {
namespace {

constexpr std::uint64_t kLineBytesMaximum = 131072;

struct Settings {
  std::uint64_t lines = 0;
  std::uint64_t line_bytes = 0;
  std::uint16_t port = kConsolePort;
};
constinit Settings settings;
constinit char pattern[kLineBytesMaximum] = {};

}  // namespace

constinit const std::string_view kName = "flood-console";

void configure(Arguments& arguments) {
  settings.lines = arguments.number("lines", 10'000, 1, 1'000'000'000);
  settings.line_bytes = arguments.number("line_bytes", 80, 1, kLineBytesMaximum);
  settings.port = arguments.choice("target", {"console", "channel"}) == 0 ? kConsolePort : kChannelData;
}

std::uint32_t run(Cpu& self) {
  if (self.index != 0) return kExitSuccess;
  for (std::uint64_t i = 0; i + 1 < settings.line_bytes; ++i) pattern[i] = static_cast<char>('a' + i % 26);
  pattern[settings.line_bytes - 1] = '\n';
  for (std::uint64_t i = 0; i < settings.lines; ++i) outsb(settings.port, pattern, settings.line_bytes);
  return kExitSuccess;
}

}  // namespace payload
