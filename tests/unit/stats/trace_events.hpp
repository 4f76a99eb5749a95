// SPDX-License-Identifier: Apache-2.0
// Tracepoints as a 6.12 kernel describes them, for tests.
#pragma once

#include <string>

#include "stats/tracepoints.hpp"

namespace vmm::stats::test {

inline std::string format_text(const std::string& name, unsigned id, const std::string& fields,
                               const std::string& print = "\"x\"") {
  return "name: " + name + "\nID: " + std::to_string(id) +
         "\nformat:\n"
         "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
         "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
         "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
         "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n" +
         fields + "\nprint fmt: " + print + "\n";
}

inline std::string kvm_exit_format() {
  return format_text("kvm_exit", 2001,
                     "\tfield:unsigned int exit_reason;\toffset:8;\tsize:4;\tsigned:0;\n"
                     "\tfield:unsigned long guest_rip;\toffset:16;\tsize:8;\tsigned:0;\n"
                     "\tfield:u32 isa;\toffset:24;\tsize:4;\tsigned:0;\n"
                     "\tfield:u64 info1;\toffset:32;\tsize:8;\tsigned:0;\n"
                     "\tfield:u64 info2;\toffset:40;\tsize:8;\tsigned:0;\n"
                     "\tfield:unsigned int vcpu_id;\toffset:56;\tsize:4;\tsigned:0;\n",
                     "\"vcpu %u %s\", REC->vcpu_id, (REC->isa == 1) ? __print_symbolic(");
}

inline std::string kvm_entry_format() {
  return format_text("kvm_entry", 2002,
                     "\tfield:unsigned int vcpu_id;\toffset:8;\tsize:4;\tsigned:0;\n"
                     "\tfield:unsigned long rip;\toffset:16;\tsize:8;\tsigned:0;\n");
}

inline std::string kvm_inj_virq_format() {
  return format_text("kvm_inj_virq", 2003,
                     "\tfield:unsigned int vector;\toffset:8;\tsize:4;\tsigned:0;\n"
                     "\tfield:bool soft;\toffset:12;\tsize:1;\tsigned:0;\n"
                     "\tfield:bool reinjected;\toffset:13;\tsize:1;\tsigned:0;\n");
}

inline Tracepoints tracepoints(Isa isa = Isa::kSvm, ApicVirtualization apic = ApicVirtualization::kNone) {
  std::map<std::string, TraceEvent, std::less<>> events;
  for (const std::string& text : {kvm_exit_format(), kvm_entry_format(), kvm_inj_virq_format()}) {
    const auto event = parse_event_format("kvm", text);
    if (event) events.emplace(event->name, *event);
  }
  return Tracepoints::of(std::move(events), isa, apic);
}

}  // namespace vmm::stats::test
