// SPDX-License-Identifier: Apache-2.0
// Every vCPU checks in once, with the APIC id it sees. Argument: timeout_ms=N (10000).
// Result: operations = vCPUs that came. Fails (status 1) unless all came and each has APIC id = index.

#include "runtime/runtime.hpp"

namespace payload {
namespace {

constinit std::uint64_t timeout_ms = 0;
constinit std::atomic<std::uint32_t> came = 0;
constinit std::atomic<std::uint32_t> wrong = 0;

}  // namespace

constinit const std::string_view kName = "smp-hello";

void configure(Arguments& arguments) {
  timeout_ms = arguments.number("timeout_ms", 10'000, 1, 600'000);
}

std::uint32_t run(Cpu& self) {
  if (self.index == 0) mark("begin");
  const std::uint64_t start = rdtsc();
  // CPUID's initial APIC id is read too: Linux believes that one (SDM vol. 2, CPUID leaf 1, EBX).
  if (LocalApic::id() != self.index || cpuid(1).ebx >> 24 != self.index) wrong.fetch_add(1);
  came.fetch_add(1);
  if (self.index != 0) return kExitSuccess;
  const std::uint64_t limit = microseconds_to_cycles(timeout_ms * 1000);
  wait_until([start, limit] { return came.load() == info().vcpus || rdtsc() - start > limit; });
  const Interval interval{rdtsc() - start};
  mark("end");
  const bool complete = came.load() == info().vcpus && wrong.load() == 0;
  Line& text = begin_result(complete ? 0 : 1, came.load(), interval);
  text.field("wrong_apic_ids", wrong.load());
  finish_result(text);
  return complete ? kExitSuccess : kExitFailed;
}

}  // namespace payload
