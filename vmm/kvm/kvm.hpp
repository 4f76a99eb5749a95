// SPDX-License-Identifier: Apache-2.0
// /dev/kvm, a VM and a vCPU as typed owners. Every call names its section of the KVM API
// (Documentation/virt/kvm/api.rst) and throws SystemError with the operation and errno unless it says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <linux/kvm.h>
#include <optional>
#include <span>
#include <vector>

#include "base/mapping.hpp"
#include "base/unique_fd.hpp"

namespace vmm::kvm {

class Vcpu {
 public:
  Vcpu(Vcpu&&) = default;
  Vcpu& operator=(Vcpu&&) = default;

  unsigned id() const noexcept { return id_; }
  // The page shared with KVM (5 "The kvm_run structure"); valid as long as this object.
  kvm_run& run_page() noexcept { return *reinterpret_cast<kvm_run*>(run_.data()); }
  std::size_t run_page_bytes() const noexcept { return run_.size(); }
  // KVM_RUN (4.10): 0, or -errno (-EINTR after a signal or immediate_exit, -EAGAIN). Never throws.
  int run() noexcept;

  kvm_regs registers() const;           // KVM_GET_REGS (4.11)
  void set_registers(const kvm_regs&);  // KVM_SET_REGS (4.12)
  kvm_sregs special_registers() const;  // KVM_GET_SREGS (4.13)
  void set_special_registers(const kvm_sregs&);
  void set_fpu(const kvm_fpu&);                       // KVM_SET_FPU (4.23)
  void set_cpuid(std::span<const kvm_cpuid_entry2>);  // KVM_SET_CPUID2 (4.20)
  void set_msrs(std::span<const kvm_msr_entry>);      // KVM_SET_MSRS (4.19); throws when one is refused
  void set_mp_state(std::uint32_t state);             // KVM_SET_MP_STATE (4.39)
  std::uint32_t mp_state() const;                     // KVM_GET_MP_STATE (4.38)
  kvm_lapic_state local_apic() const;                 // KVM_GET_LAPIC (4.57)
  void set_local_apic(const kvm_lapic_state&);        // KVM_SET_LAPIC (4.58)
  std::optional<std::uint64_t> tsc_khz() const;       // KVM_GET_TSC_KHZ (4.56); none where it is not offered
  std::optional<std::uint64_t> translate(std::uint64_t linear_address) const;  // KVM_TRANSLATE (4.15)
  std::optional<base::UniqueFd> stats_fd() const;  // KVM_GET_STATS_FD (4.133); none where it is not offered
  bool clock_control() noexcept;                   // KVM_KVMCLOCK_CTRL (4.70); false where refused

 private:
  friend class Vm;
  Vcpu(unsigned id, base::UniqueFd fd, base::Mapping run) : id_(id), fd_(std::move(fd)), run_(std::move(run)) {}
  unsigned id_ = 0;
  base::UniqueFd fd_;
  base::Mapping run_;
};

class Vm {
 public:
  // KVM_CHECK_EXTENSION on the VM (4.4): 0 when absent.
  int extension(long capability) const noexcept;
  void set_tss_address(std::uint64_t address);           // KVM_SET_TSS_ADDR (4.36)
  void set_identity_map_address(std::uint64_t address);  // KVM_SET_IDENTITY_MAP_ADDR (4.40)
  void create_irqchip();                                 // KVM_CREATE_IRQCHIP (4.24)
  void create_pit();                                     // KVM_CREATE_PIT2 (4.71), with a dummy speaker port
  // KVM_SET_USER_MEMORY_REGION (4.35): `host` must stay mapped while the VM lives.
  void set_memory(std::uint32_t slot, std::uint64_t guest_address, std::uint64_t bytes, std::byte* host);
  void set_halt_poll_ns(std::uint64_t nanoseconds);  // KVM_CAP_HALT_POLL (7.20); any number of times
  // KVM_CAP_X86_DISABLE_EXITS (7.13): before the first vCPU, else KVM ignores it silently.
  void disable_exits(std::uint64_t mask);
  void set_irq_line(std::uint32_t gsi, bool level);  // KVM_IRQ_LINE (4.25)
  std::optional<base::UniqueFd> stats_fd() const;
  Vcpu create_vcpu(unsigned id);  // KVM_CREATE_VCPU (4.7)

 private:
  friend class System;
  Vm(base::UniqueFd fd, std::size_t run_bytes) : fd_(std::move(fd)), run_bytes_(run_bytes) {}
  base::UniqueFd fd_;
  std::size_t run_bytes_ = 0;
};

class System {
 public:
  // Opens the device. Throws HostUnable that says what is missing (no device, no permission, busy, wrong API version)
  // and how to get it.
  explicit System(const std::filesystem::path& device = "/dev/kvm");

  int extension(long capability) const noexcept;  // KVM_CHECK_EXTENSION (4.4)
  // Throws HostUnable that names every missing required capability.
  void require_capabilities() const;
  std::vector<kvm_cpuid_entry2> supported_cpuid() const;  // KVM_GET_SUPPORTED_CPUID (4.46)
  unsigned maximum_vcpus() const noexcept;                // KVM_CAP_MAX_VCPUS
  Vm create_vm() const;                                   // KVM_CREATE_VM (4.2)

 private:
  base::UniqueFd fd_;
};

}  // namespace vmm::kvm
