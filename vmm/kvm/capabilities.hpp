// SPDX-License-Identifier: Apache-2.0
// The capabilities of KVM that the VMM uses, by name: the list that `vmm doctor` prints and that set-up checks once.
#pragma once

#include <array>
#include <linux/kvm.h>
#include <string_view>

namespace vmm::kvm {

enum class Need { kRequired, kOptional };

struct Capability {
  long number;            // KVM_CAP_*
  std::string_view name;  // as in the KVM API documentation
  Need need;
  std::string_view used_for;
};

// KVM API (Documentation/virt/kvm/api.rst) sections 4.4, 6, 7 and 8.
inline constexpr std::array kCapabilities = {
    Capability{KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY", Need::kRequired, "guest RAM"},
    Capability{KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID", Need::kRequired, "the guest's CPUID"},
    Capability{KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT", Need::kRequired, "stopping a vCPU without a race"},
    Capability{KVM_CAP_IRQCHIP, "KVM_CAP_IRQCHIP", Need::kRequired, "the in-kernel interrupt controllers"},
    Capability{KVM_CAP_MP_STATE, "KVM_CAP_MP_STATE", Need::kRequired, "starting the vCPUs of a payload"},
    Capability{KVM_CAP_SET_TSS_ADDR, "KVM_CAP_SET_TSS_ADDR", Need::kOptional, "real mode on Intel"},
    Capability{KVM_CAP_SET_IDENTITY_MAP_ADDR, "KVM_CAP_SET_IDENTITY_MAP_ADDR", Need::kOptional, "real mode on Intel"},
    Capability{KVM_CAP_PIT2, "KVM_CAP_PIT2", Need::kOptional, "stock kernels that calibrate against the PIT"},
    Capability{KVM_CAP_TSC_DEADLINE_TIMER, "KVM_CAP_TSC_DEADLINE_TIMER", Need::kOptional,
               "the guest's high-resolution timer"},
    Capability{KVM_CAP_GET_TSC_KHZ, "KVM_CAP_GET_TSC_KHZ", Need::kOptional, "times in payload results"},
    Capability{KVM_CAP_BINARY_STATS_FD, "KVM_CAP_BINARY_STATS_FD", Need::kOptional, "HLT exits and host-poll counters"},
    Capability{KVM_CAP_HALT_POLL, "KVM_CAP_HALT_POLL", Need::kOptional, "--host-halt-poll"},
    Capability{KVM_CAP_X86_DISABLE_EXITS, "KVM_CAP_X86_DISABLE_EXITS", Need::kOptional, "--disable-exits"},
    Capability{KVM_CAP_SPLIT_IRQCHIP, "KVM_CAP_SPLIT_IRQCHIP", Need::kOptional, "--irqchip=split"},
    Capability{KVM_CAP_X86_USER_SPACE_MSR, "KVM_CAP_X86_USER_SPACE_MSR", Need::kOptional, "x2APIC with --irqchip=user"},
    Capability{KVM_CAP_X86_MSR_FILTER, "KVM_CAP_X86_MSR_FILTER", Need::kOptional, "the timer with --irqchip=user"},
    Capability{KVM_CAP_KVMCLOCK_CTRL, "KVM_CAP_KVMCLOCK_CTRL", Need::kOptional,
               "telling the guest that it was stopped"},
};

}  // namespace vmm::kvm
