// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace vmm::machine {

// Why a VM stopped. The first reason counts.
struct Stop {
  enum class Kind {
    kPoweredOff,   // the guest asked for it (ACPI S5)
    kReset,        // the guest asked for a reset: this VMM does not start it again
    kPayloadExit,  // a payload wrote its exit value
    kCrashed,      // a vCPU cannot go on, or the guest's kernel panicked
    kMisbehaved,   // the guest broke the agent channel's rules
    kTimeout,      // --timeout
    kWedged,       // --watchdog
    kInterrupted,  // a signal asked this process to end
    kFinished,     // the experiment has what it wanted
  };
  Kind kind = Kind::kFinished;
  std::string what;         // one line
  std::uint32_t value = 0;  // the payload's exit value, or the signal's number
};

}  // namespace vmm::machine
