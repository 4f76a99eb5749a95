// SPDX-License-Identifier: Apache-2.0
// Exit reasons of the two x86 vendors, put into the classes that the statistics show. One table serves the perf filters
// and the decoding of samples, so they cannot disagree.
// Sources: AMD APM vol. 2 appendix C (exit codes), Intel SDM vol. 3 appendix C (basic exit reasons), and the kernel's
// arch/x86/include/uapi/asm/{svm,vmx}.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace vmm::stats {

// The values of the `isa` field of the kvm_exit tracepoint (arch/x86/kvm/trace.h).
enum class Isa : std::uint32_t { kVmx = 1, kSvm = 2 };

enum class ExitClass {
  kHlt,
  kMsr,
  kExternalInterrupt,
  kNpfOrEpt,  // nested page fault or EPT violation that is not known MMIO
  kMmio,      // an access to an address that KVM has marked as MMIO: NPF with a reserved bit, or EPT misconfiguration;
              // the first access to each such page still counts as kNpfOrEpt
  kIo,
  kHypercall,
  kPause,
  kCpuid,
  kApicAccess,       // APIC access, APIC write, AVIC incomplete IPI or unaccelerated access
  kInterruptWindow,  // VINTR or interrupt window: the guest has just become able to take an interrupt
  kOther,
};
inline constexpr std::size_t kExitClasses = 12;
// Every class but kOther, which is what remains of the total.
inline constexpr std::array<ExitClass, kExitClasses - 1> kNamedExitClasses{
    ExitClass::kHlt,   ExitClass::kMsr,        ExitClass::kExternalInterrupt, ExitClass::kNpfOrEpt,
    ExitClass::kMmio,  ExitClass::kIo,         ExitClass::kHypercall,         ExitClass::kPause,
    ExitClass::kCpuid, ExitClass::kApicAccess, ExitClass::kInterruptWindow};

// "hlt", "msr", "external_interrupt", "npf_or_ept", "mmio", "io", "hypercall", "pause", "cpuid", "apic_access",
// "interrupt_window", "other".
std::string_view name_of(ExitClass exit_class) noexcept;

// Class of one kvm_exit sample. `info1` is the field of that name (SVM: EXITINFO1, for an NPF the error code).
ExitClass classify_exit(Isa isa, std::uint32_t exit_reason, std::uint64_t info1) noexcept;

// The filter of the kvm_exit tracepoint that selects exactly classify_exit()'s members. Not for kOther.
std::string exit_filter(Isa isa, ExitClass exit_class);

// The vendor's architecture by /proc/cpuinfo's text: "svm" or "vmx" among the flags. kSvm if neither is named and
// vendor_id is AuthenticAMD or HygonGenuine.
Isa isa_of_cpuinfo(std::string_view cpuinfo) noexcept;

}  // namespace vmm::stats
