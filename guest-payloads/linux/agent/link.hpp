// SPDX-License-Identifier: Apache-2.0
// The agent's connection to the VMM: a line out, at most a line back.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace guest {

class Link {
 public:
  virtual ~Link() = default;
  // Hands over a line (without its newline) and returns the reply, without its newline, or "".
  virtual std::string exchange(std::string_view line) = 0;
};

// Twelve I/O ports from 0xE00 on, by ioperm(2):
//   +0, 8 bit: a byte of a line out; a byte of the reply in.  +4, 32 bit: bytes of reply pending.  +8: a magic number.
// The VMM acts on a line within the write of its newline.
class PortLink final : public Link {
 public:
  // Nothing when the ports cannot be had or nobody answers there; `why` says which.
  static std::optional<PortLink> open(std::string& why);
  std::string exchange(std::string_view line) override;

 private:
  PortLink() = default;
};

}  // namespace guest
