// SPDX-License-Identifier: Apache-2.0
#include "experiment/run_config.hpp"

namespace vmm::experiment {

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
