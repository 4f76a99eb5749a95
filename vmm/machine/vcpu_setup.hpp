// SPDX-License-Identifier: Apache-2.0
// Adapters between boot's plain values and KVM's structures.
#pragma once

#include <cstdint>
#include <vector>

#include "boot/cpuid_policy.hpp"
#include "boot/register_state.hpp"
#include "kvm/kvm.hpp"

namespace vmm::machine {

std::vector<boot::CpuidEntry> from_kvm(const std::vector<kvm_cpuid_entry2>& entries);
std::vector<kvm_cpuid_entry2> to_kvm(const std::vector<boot::CpuidEntry>& entries);

// The registers that a boot protocol prescribes; all others keep their reset value.
void apply_registers(kvm::Vcpu& vcpu, const boot::RegisterState& state);

// What firmware would have left behind: MTRRs that say write-back, fast strings, the x87/SSE control words, and the
// local APIC's LINT0 = ExtINT and LINT1 = NMI (virtual wire mode, MP specification 3.6.2.2).
void apply_firmware_state(kvm::Vcpu& vcpu);

// True when a fixed IPI of Linux (or a payload) is accepted but not yet delivered: its bit is set in the IRR.
bool ipi_pending(const kvm_lapic_state& local_apic) noexcept;

}  // namespace vmm::machine
