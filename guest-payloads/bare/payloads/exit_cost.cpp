// SPDX-License-Identifier: Apache-2.0
//
// What one trip out of the guest costs vCPU 0, in cycles of its TSC, minimum and median:
//   nothing    two RDTSC in a row: the cost of measuring, contained in all others
//   hlt        an interrupt of its own made pending with interrupts off (not measured), then STI;HLT until its handler
//              is done: HLT exit, no blocking, entry, delivery, EOI
//   cpuid      leaf 0
//   port_in    a read that a device answers: the channel's count of pending bytes, port 0xE04
//   port_out   a byte to port 0x80, where nobody listens
//   hypercall  KVM_HC_VAPIC_POLL_IRQ (nr 1, does nothing), by VMCALL or VMMCALL as CPUID's vendor says; null with
//              the reason where no KVM signature is in CPUID, or the instruction faults or never ends
//
// Argument: rounds=N (10000), of each.

#include "runtime/runtime.hpp"
#include "runtime/samples.hpp"
#include "runtime/timer.hpp"

namespace payload {
namespace {

constexpr std::size_t kSamples = 1024;
constexpr std::uint32_t kVectorUndefinedOpcode = 6;
constexpr std::uint64_t kHypercallPollIrq = 1;
constexpr std::uint64_t kHypercallLimitUs = 100'000;

struct Cost {
  std::uint64_t minimum = 0;
  std::uint64_t median = 0;
  std::string_view reason;  // why it could not be had; empty when it could
};

constinit std::uint64_t rounds = 0;
constinit Samples<kSamples> samples;

template <class Trip>
Cost cost_of(Trip trip) {
  samples.start(rounds);
  for (std::uint64_t round = 0; round < rounds; ++round) samples.add(trip());
  return {samples.minimum(), samples.median(), {}};
}

template <class Action>
std::uint64_t cycles_of(Action action) {
  const std::uint64_t start = rdtsc();
  action();
  return rdtsc() - start;
}

std::uint64_t halt_with_interrupt_pending(Cpu& self) {
  const std::uint64_t received = self.counts.ipi_received.get() + 1;
  disable_interrupts();
  self.counts.ipi_sent.add();
  LocalApic::send(self.index, kVectorReschedule);
  const std::uint64_t start = rdtsc();
  halt(self);
  wait_until([&self, received] { return self.counts.ipi_received.get() >= received; });
  return rdtsc() - start;
}

bool signature(const Cpuid& leaf, std::uint32_t ebx, std::uint32_t ecx, std::uint32_t edx) {
  return leaf.ebx == ebx && leaf.ecx == ecx && leaf.edx == edx;
}

// False when the instruction raised an exception; payload_exception resumed behind it.
template <bool kAmd>
bool hypercall(Cpu& self, std::uint64_t& cycles) {
  std::uint64_t result = kHypercallPollIrq;
  const std::uint64_t start = rdtsc();
  if constexpr (kAmd) {
    asm volatile("lea 1f(%%rip), %%rdx; mov %%rdx, %1; vmmcall; 1:"
                 : "+a"(result), "=m"(self.resume_at)::"rdx", "memory");
  } else {
    asm volatile("lea 1f(%%rip), %%rdx; mov %%rdx, %1; vmcall; 1:"
                 : "+a"(result), "=m"(self.resume_at)::"rdx", "memory");
  }
  cycles = rdtsc() - start;
  const bool resumed = self.resume_at == 0;
  self.resume_at = 0;
  return !resumed;
}

// Why this vCPU cannot be measured making hypercalls; empty when it can. Before the begin mark: it takes a timer, for
// there is a KVM (a paging-based one) that executes the instruction again and again.
std::string_view hypercall_obstacle(Cpu& self, bool& amd) {
  // "KVMKVMKVM\0\0\0" in EBX, ECX, EDX of leaf 0x40000000 (Documentation/virt/kvm/x86/cpuid.rst).
  if ((cpuid(1).ecx >> 31 & 1) == 0 || !signature(cpuid(0x40000000), 0x4B4D564B, 0x564B4D56, 0x4D)) {
    return "no KVM signature in CPUID";
  }
  const Cpuid vendor = cpuid(0);
  amd = signature(vendor, 0x68747541, 0x444D4163, 0x69746E65) ||  // AuthenticAMD
        signature(vendor, 0x6F677948, 0x656E6975, 0x6E65476E);    // HygonGenuine
  const Timer timer(Timer::Mode::kAutomatic);
  timer.arm(kHypercallLimitUs);
  std::uint64_t cycles = 0;
  const bool returned = amd ? hypercall<true>(self, cycles) : hypercall<false>(self, cycles);
  timer.disarm();
  if (returned) return {};
  switch (self.caught_vector) {
    case kVectorUndefinedOpcode:
      return "the hypercall instruction raises #UD";
    case kVectorTimer:
      return "the hypercall instruction does not end";
    default:
      return "the hypercall instruction raises an exception";
  }
}

Cost hypercall_cost(Cpu& self, bool amd) {
  return cost_of([&self, amd] {
    std::uint64_t cycles = 0;
    if (!(amd ? hypercall<true>(self, cycles) : hypercall<false>(self, cycles))) {
      fail("hypercall", "the hypercall worked once, then raised an exception", kExitFailed);
    }
    return cycles;
  });
}

void write(Line& text, std::string_view name, const Cost& cost) {
  text.key(name);
  if (cost.reason.empty()) {
    text.open('{').field("min", cost.minimum).field("median", cost.median).close('}');
  } else {
    text.literal("null");
  }
}

}  // namespace

constinit const std::string_view kName = "exit-cost";

void configure(Arguments& arguments) {
  rounds = arguments.number("rounds", 10000, 1, 1'000'000'000);
}

std::uint32_t run(Cpu& self) {
  struct {
    Cost nothing, hlt, cpuid, port_in, port_out, hypercall;
  } costs;
  bool amd = false;
  if (self.index == 0) costs.hypercall.reason = hypercall_obstacle(self, amd);
  const auto work = [&] {
    if (self.index != 0) return;
    costs.nothing = cost_of([] { return cycles_of([] {}); });
    costs.hlt = cost_of([&self] { return halt_with_interrupt_pending(self); });
    costs.cpuid = cost_of([] { return cycles_of([] { cpuid(0); }); });
    costs.port_in = cost_of([] { return cycles_of([] { inl(kChannelPending); }); });
    costs.port_out = cost_of([] { return cycles_of([] { outb(0x80, 0); }); });
    if (costs.hypercall.reason.empty()) costs.hypercall = hypercall_cost(self, amd);
  };
  const Interval interval = measure(self, work, [] { return true; });
  const bool exact =
      self.counts.hlt.get() + self.counts.hlt_left_out.get() == rounds && self.counts.ipi_received.get() == rounds;
  Line& text = begin_result(exact ? 0 : 1, rounds, interval);
  text.key("cost_cycles").open('{');
  write(text, "nothing", costs.nothing);
  write(text, "hlt", costs.hlt);
  write(text, "cpuid", costs.cpuid);
  write(text, "port_in", costs.port_in);
  write(text, "port_out", costs.port_out);
  write(text, "hypercall", costs.hypercall);
  if (!costs.hypercall.reason.empty()) text.field("hypercall_reason", costs.hypercall.reason);
  text.close('}');
  finish_result(text);
  return exact ? kExitSuccess : kExitFailed;
}

}  // namespace payload
