// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <pthread.h>
#include <string>

#include "kvm/kvm.hpp"
#include "vcpu/exit.hpp"
#include "vcpu/run_gate.hpp"

namespace vmm::vcpu {

// The signal that kicks a vCPU out of KVM_RUN. Its handler does nothing; it is installed without SA_RESTART so that a
// blocked system call returns.
int kick_signal() noexcept;
void install_kick_handler();

// Makes KVM_RUN of that vCPU return (KVM API 5, immediate_exit). `thread` is the thread that runs it.
void kick(kvm_run& run, pthread_t thread) noexcept;

// The vCPU loop: enter, KVM_RUN, leave, dispatch, until the gate stops it (no value) or the vCPU cannot go on.
std::optional<Crash> run_vcpu(kvm::Vcpu& vcpu, RunGate& gate, const Buses& buses);

// Registers, instruction bytes at RIP and state of a vCPU outside KVM_RUN, as text of several lines, for a crash
// report. `read_memory(guest_physical, bytes)` gives the bytes or an empty span. What cannot be read is said.
std::string describe_state(const kvm::Vcpu& vcpu,
                           const std::function<std::span<const std::byte>(std::uint64_t, std::uint64_t)>& read_memory);

}  // namespace vmm::vcpu
