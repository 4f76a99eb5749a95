// SPDX-License-Identifier: Apache-2.0
#include "stats/exit_reasons.hpp"

#include <fmt/format.h>
#include <span>

namespace vmm::stats {
namespace {

struct Code {
  std::uint32_t exit_reason;
  ExitClass exit_class;
};

// AMD APM vol. 2, appendix C.
constexpr std::uint32_t kSvmNpf = 0x400;
constexpr Code kSvmCodes[] = {
    {0x60, ExitClass::kExternalInterrupt},  // INTR
    {0x64, ExitClass::kInterruptWindow},    // VINTR
    {0x72, ExitClass::kCpuid},
    {0x77, ExitClass::kPause},
    {0x78, ExitClass::kHlt},
    {0x7b, ExitClass::kIo},  // IOIO
    {0x7c, ExitClass::kMsr},
    {0x81, ExitClass::kHypercall},    // VMMCALL
    {0x401, ExitClass::kApicAccess},  // AVIC_INCOMPLETE_IPI
    {0x402, ExitClass::kApicAccess},  // AVIC_NOACCEL
};

// Error code of a nested page fault: reserved bit set (APM vol. 2, 15.25.6). KVM marks MMIO pages so (shadow_mmio_value
// in arch/x86/kvm/mmu/spte.c).
constexpr std::uint64_t kNpfReserved = 0x8;

// Intel SDM vol. 3, appendix C, table C-1.
constexpr Code kVmxCodes[] = {
    {1, ExitClass::kExternalInterrupt},
    {7, ExitClass::kInterruptWindow},
    {10, ExitClass::kCpuid},
    {12, ExitClass::kHlt},
    {18, ExitClass::kHypercall},  // VMCALL
    {30, ExitClass::kIo},
    {31, ExitClass::kMsr},  // RDMSR
    {32, ExitClass::kMsr},  // WRMSR
    {40, ExitClass::kPause},
    {44, ExitClass::kApicAccess},
    {48, ExitClass::kNpfOrEpt},    // EPT violation
    {49, ExitClass::kMmio},        // EPT misconfiguration
    {56, ExitClass::kApicAccess},  // APIC write
};

std::span<const Code> codes_of(Isa isa) noexcept {
  return isa == Isa::kVmx ? std::span<const Code>(kVmxCodes) : std::span<const Code>(kSvmCodes);
}

}  // namespace

std::string_view name_of(ExitClass exit_class) noexcept {
  switch (exit_class) {
    case ExitClass::kHlt:
      return "hlt";
    case ExitClass::kMsr:
      return "msr";
    case ExitClass::kExternalInterrupt:
      return "external_interrupt";
    case ExitClass::kNpfOrEpt:
      return "npf_or_ept";
    case ExitClass::kMmio:
      return "mmio";
    case ExitClass::kIo:
      return "io";
    case ExitClass::kHypercall:
      return "hypercall";
    case ExitClass::kPause:
      return "pause";
    case ExitClass::kCpuid:
      return "cpuid";
    case ExitClass::kApicAccess:
      return "apic_access";
    case ExitClass::kInterruptWindow:
      return "interrupt_window";
    case ExitClass::kOther:
      return "other";
  }
  return "other";
}

ExitClass classify_exit(Isa isa, std::uint32_t exit_reason, std::uint64_t info1) noexcept {
  if (isa == Isa::kSvm && exit_reason == kSvmNpf) {
    return (info1 & kNpfReserved) != 0 ? ExitClass::kMmio : ExitClass::kNpfOrEpt;
  }
  for (const Code& code : codes_of(isa)) {
    if (code.exit_reason == exit_reason) return code.exit_class;
  }
  return ExitClass::kOther;
}

std::string exit_filter(Isa isa, ExitClass exit_class) {
  if (isa == Isa::kSvm && exit_class == ExitClass::kMmio) {
    return fmt::format("exit_reason=={:#x} && info1&{:#x}", kSvmNpf, kNpfReserved);
  }
  if (isa == Isa::kSvm && exit_class == ExitClass::kNpfOrEpt) {
    return fmt::format("exit_reason=={:#x} && !(info1&{:#x})", kSvmNpf, kNpfReserved);
  }
  std::string filter;
  for (const Code& code : codes_of(isa)) {
    if (code.exit_class != exit_class) continue;
    if (!filter.empty()) filter += " || ";
    filter += fmt::format("exit_reason=={:#x}", code.exit_reason);
  }
  return filter;
}

Isa isa_of_cpuinfo(std::string_view cpuinfo) noexcept {
  // Only the first processor's lines: they are alike on all, and the text grows with the machine.
  const std::size_t flags_at = cpuinfo.find("\nflags");
  const std::size_t vendor_at = cpuinfo.find("vendor_id");
  const auto line = [&](std::size_t at) {
    if (at == cpuinfo.npos) return std::string_view{};
    const std::size_t start = cpuinfo[at] == '\n' ? at + 1 : at;
    return cpuinfo.substr(start, cpuinfo.find('\n', start) - start);
  };
  const auto has_word = [](std::string_view text, std::string_view word) {
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      if (at > 0 && text[at - 1] == ' ' && (end == text.size() || text[end] == ' ')) return true;
    }
    return false;
  };
  const std::string_view flags = line(flags_at);
  if (has_word(flags, "vmx")) return Isa::kVmx;
  if (has_word(flags, "svm")) return Isa::kSvm;
  return line(vendor_at).find("GenuineIntel") != std::string_view::npos ? Isa::kVmx : Isa::kSvm;
}

}  // namespace vmm::stats
