// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiment/run_config.hpp"
#include "stats/vcpu_snapshot.hpp"

namespace vmm::experiment {

// That an arm was what it claims: the state read back, or an effect that only that state has.
struct Proof {
  std::string what;           // "idle_spin"
  std::string asked;          // "50us"
  std::string seen;           // "50us read back; 812 spins"
  std::optional<bool> holds;  // no value: there is nothing to see it by, which `seen` explains
  bool operator==(const Proof&) const = default;
};

// Of one trial of a guest. `hello` and `configured` are the agent's answers (docs/protocol.md), hostile: what is absent
// or of the wrong type proves nothing. Pure.
//   idle_spin        read back, and by the guest's counters: spins where asked, none where not
//   idle method      cpuidle driver, command line
//   host halt-poll   has no read-back: halt_polls_attempted; 0 although asked is explained where the guest's haltpoll
//                    driver turned it off (MSR_KVM_POLL_CONTROL), else it fails
//   HLT exits        none with --disable-exits=hlt
std::vector<Proof> prove(const GuestConfig& asked, const nlohmann::json& hello, const nlohmann::json& configured,
                         std::span<const stats::VcpuSnapshot> vcpus);

nlohmann::ordered_json to_json(const Proof& proof);

}  // namespace vmm::experiment
