// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "experiment/run_config.hpp"
#include "machine/stop.hpp"

namespace vmm::experiment {

// `vmm [options]`: one guest, one trial. Result to standard output or the --stats file, everything else to standard
// error. Returns the exit status; throws base::Error before the guest's first instruction.
int run_once(const RunConfig& config);

// The process's exit status for a guest's end. `workload_status`: of the last trial, when there was one. Pure.
base::ExitStatus exit_status_of(const machine::Stop& stop, std::optional<int> workload_status, bool workload_expected);

// The options as asked, as JSON for the result document. Pure.
nlohmann::ordered_json config_json(const GuestConfig& guest, const base::NamedParameters& workload);
nlohmann::ordered_json config_json(const GuestConfig& guest);

// That the guest idles as asked, by its hello. Throws HostUnable where its cpuidle driver is another.
void verify_idle(const GuestConfig& guest, const nlohmann::json& hello);

// This host: kernel, CPU model, microcode, whether it is itself a guest, frequency governor, mitigations, clock source,
// KVM modules and their parameters.
nlohmann::ordered_json host_json();

}  // namespace vmm::experiment
