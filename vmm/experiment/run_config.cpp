// SPDX-License-Identifier: Apache-2.0
#include "experiment/run_config.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace vmm::experiment {

std::uint32_t parse_guest_spin_us(std::string_view text) {
  constexpr std::uint64_t kMicrosecondNs = 1'000;
  const std::uint64_t ns =
      base::parse_duration_ns("--guest-spin", text, kMicrosecondNs, {0, kGuestSpinMaximumUs * kMicrosecondNs});
  if (ns % kMicrosecondNs != 0) {
    throw base::BadInput(fmt::format("--guest-spin: '{}' is not a whole number of microseconds from 0 to {}", text,
                                     kGuestSpinMaximumUs));
  }
  return static_cast<std::uint32_t>(ns / kMicrosecondNs);
}

const char* name_of(GuestFlavour flavour) noexcept {
  return flavour == GuestFlavour::kRt ? "rt" : "lab";
}

const char* name_of(GuestIdle idle) noexcept {
  switch (idle) {
    case GuestIdle::kHalt:
      return "halt";
    case GuestIdle::kHaltpoll:
      return "haltpoll";
    case GuestIdle::kPoll:
      return "poll";
    case GuestIdle::kMwait:
      return "mwait";
  }
  return "?";
}

}  // namespace vmm::experiment
