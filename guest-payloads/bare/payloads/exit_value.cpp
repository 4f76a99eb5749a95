// SPDX-License-Identifier: Apache-2.0
// Ends with the value it is told. Argument: value=N (0), 0 to 255.

#include "runtime/runtime.hpp"

namespace payload {
namespace {

constinit std::uint32_t value = 0;

}  // namespace

constinit const std::string_view kName = "exit-value";

void configure(Arguments& arguments) {
  value = static_cast<std::uint32_t>(arguments.number("value", 0, 0, 255));
}

std::uint32_t run(Cpu&) {
  return value;
}

}  // namespace payload
