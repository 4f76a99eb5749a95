// SPDX-License-Identifier: Apache-2.0
// Where the kernel's tracepoints are and whether this process may count them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "stats/exit_reasons.hpp"

namespace vmm::stats {

// A field of a tracepoint's record, as the event's `format` file says.
struct TraceField {
  std::size_t offset = 0;  // bytes from the start of the raw record
  std::size_t size = 0;    // bytes
  bool is_signed = false;
  bool operator==(const TraceField&) const = default;
};

struct TraceEvent {
  std::string name;
  std::uint64_t id = 0;  // for perf_event_attr.config
  std::map<std::string, TraceField, std::less<>> fields;
  bool has_field(std::string_view field) const { return fields.contains(field); }
};

// Parses an event's `format` file with libtraceevent. Nothing for text that it rejects, or whose fields lie outside
// 64 KiB. Never throws for any text.
std::optional<TraceEvent> parse_event_format(std::string_view system, std::string_view format);

// kvm_apic_accept_irq's `dm`: KVM stores the delivery mode where the ICR has it, bits 8 to 10 (SDM vol. 3, 10.6.1;
// arch/x86/kvm/lapic.c, __apic_accept_irq, whose callers pass `icr & APIC_MODE_MASK` or an MSI's mode shifted by 8).
inline constexpr std::uint32_t kDeliveryFixed = 0x000;
inline constexpr std::uint32_t kDeliveryLowest = 0x100;
inline constexpr std::uint32_t kDeliverySmi = 0x200;
inline constexpr std::uint32_t kDeliveryNmi = 0x400;
inline constexpr std::uint32_t kDeliveryInit = 0x500;
inline constexpr std::uint32_t kDeliveryStartup = 0x600;

// Vectors of x86 Linux (arch/x86/include/asm/irq_vectors.h, 6.1 and 6.12).
inline constexpr unsigned kVectorReschedule = 0xfd;
inline constexpr unsigned kVectorCallFunction = 0xfc;
inline constexpr unsigned kVectorCallFunctionSingle = 0xfb;
inline constexpr unsigned kVectorReboot = 0xf8;
inline constexpr unsigned kVectorPlatformIpi = 0xf7;
inline constexpr unsigned kVectorIrqWork = 0xf6;
inline constexpr unsigned kVectorLocalTimer = 0xec;

// Whether KVM's own delivery passes the tracepoints at all.
enum class ApicVirtualization {
  kNone,            // every IPI is an exit, every injection an event
  kApicv,           // IPIs still exit, but interrupts are delivered by the CPU: kvm_inj_virq does not see them
  kIpiVirtualized,  // AVIC or Intel's IPI virtualization: an IPI may cause no exit; only the guest knows
};

// From the parameters of kvm_intel (enable_apicv, enable_ipiv) and kvm_amd (avic) below `modules`. Unreadable: kNone,
// since a KVM that lacks the parameter lacks the feature.
ApicVirtualization detect_apic_virtualization(const std::filesystem::path& modules = "/sys/module");

// What the host offers, looked up once. Never throws: what is missing is said in `problem` and `remedy`.
class Tracepoints {
 public:
  static Tracepoints probe();
  // All of it from given facts: for tests, and for a caller that forbids tracing.
  static Tracepoints unavailable(std::string problem, std::string remedy);
  static Tracepoints of(std::map<std::string, TraceEvent, std::less<>> events, Isa isa, ApicVirtualization apic);

  // True when events can be found and a counter could be opened.
  bool usable() const noexcept { return problem_.empty(); }
  const std::string& problem() const noexcept { return problem_; }  // "tracefs is not mounted"
  const std::string& remedy() const noexcept { return remedy_; }    // "mount -t tracefs nodev /sys/kernel/tracing"
  std::string reason() const;                                       // "problem: remedy", for a null Value

  // An event of the system `kvm`; nullptr when this kernel has none of that name.
  const TraceEvent* find(std::string_view event) const;
  Isa isa() const noexcept { return isa_; }
  ApicVirtualization apic_virtualization() const noexcept { return apic_virtualization_; }

 private:
  std::string problem_;
  std::string remedy_;
  std::map<std::string, TraceEvent, std::less<>> events_;
  Isa isa_ = Isa::kSvm;
  ApicVirtualization apic_virtualization_ = ApicVirtualization::kNone;
};

// Why perf_event_open() failed, and what would work. `paranoid`: /proc/sys/kernel/perf_event_paranoid, if readable.
std::string explain_perf_error(int error_number, std::optional<int> paranoid);
std::optional<int> read_perf_event_paranoid();

}  // namespace vmm::stats
