// SPDX-License-Identifier: Apache-2.0
#include "stats/vcpu_counters.hpp"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fmt/format.h>
#include <initializer_list>
#include <sys/resource.h>
#include <system_error>
#include <utility>

#include "base/file.hpp"
#include "base/parse.hpp"

namespace vmm::stats {
namespace {

constexpr std::string_view kAccept = "kvm_apic_accept_irq";
constexpr std::string_view kIcr = "kvm_apic_ipi";
constexpr std::string_view kInject = "kvm_inj_virq";

// KVM_HC_SEND_IPI (Documentation/virt/kvm/x86/hypercalls.rst).
constexpr unsigned kHypercallSendIpi = 10;

// Interrupts by vector: fixed or lowest-priority delivery. SMI, NMI, INIT and SIPI have a `vec` too, with no or another
// meaning.
std::string vector_filter(std::initializer_list<unsigned> vectors) {
  std::string any;
  for (const unsigned vector : vectors) {
    if (!any.empty()) any += " || ";
    any += fmt::format("vec=={:#x}", vector);
  }
  return fmt::format("dm<{:#x} && ({})", kDeliverySmi, any);
}

// IPIs that are neither reschedule nor call-function: NMI, INIT and SIPI by delivery mode, and Linux's rarer vectors.
std::string other_ipi_filter() {
  return fmt::format("dm=={:#x} || dm=={:#x} || dm=={:#x} || ({})", kDeliveryNmi, kDeliveryInit, kDeliveryStartup,
                     vector_filter({kVectorReboot, kVectorPlatformIpi, kVectorIrqWork}));
}

// Bits of icr_low that are set or clear. The filter language cannot compare a part of a field, but its `&` tests bits.
std::string icr_filter(unsigned vector) {
  std::string filter = fmt::format("!(icr_low&{:#x})", 0x600);  // fixed or lowest priority
  for (unsigned bit = 1; bit <= 0x80; bit <<= 1) {
    filter += (vector & bit) != 0 ? fmt::format(" && icr_low&{:#x}", bit) : fmt::format(" && !(icr_low&{:#x})", bit);
  }
  return filter;
}

std::string call_function_icr_filter() {
  return fmt::format("({}) || ({})", icr_filter(kVectorCallFunction), icr_filter(kVectorCallFunctionSingle));
}

CounterSpec spec(std::string name, std::string_view event, std::string filter, bool inherit = false) {
  return {std::move(name), std::string(event), std::move(filter), inherit};
}

bool is_ipi_counter(std::string_view name) {
  return name.starts_with("ipi_") || name.starts_with("icr_") || name.starts_with("pv_ipi_");
}

Value trace_null(std::string reason) {
  return Value::null(Unit::kCount, Source::kTracepoint, std::move(reason));
}

// Every event that fires is tested against every filter: with more vCPUs than this that costs more than the switches
// of events bound to threads.
constexpr std::size_t kMaxVcpusBoundToCpus = 8;
constexpr std::size_t kMaxFdsBoundToCpus = 1024;

// Leaves half of what this process may open to others.
std::size_t max_fds_bound_to_cpus() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  return std::min<std::size_t>(kMaxFdsBoundToCpus, static_cast<std::size_t>(limit.rlim_cur / 2));
}

std::vector<unsigned> online_cpus() {
  constexpr unsigned kLimit = 1 << 16;
  try {
    std::string text = base::read_text("/sys/devices/system/cpu/online");
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return base::parse_cpu_list("/sys/devices/system/cpu/online", text, kLimit);
  } catch (const std::exception&) {
    return {};
  }
}

// The initial PID namespace has a fixed inode number (PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h).
bool in_initial_pid_namespace() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/ns/pid", error) == "pid:[4026531836]" && !error;
}

}  // namespace

std::vector<CounterSpec> target_counter_specs(unsigned vcpu, const TraceGroups& groups) {
  std::vector<CounterSpec> specs;
  if (!groups.ipi_targets) return specs;
  const auto add = [&](const char* name, const std::string& what) {
    specs.push_back(spec(name, kAccept, fmt::format("apicid=={} && ({})", vcpu, what), true));
  };
  add("ipi_injected_reschedule", vector_filter({kVectorReschedule}));
  add("ipi_injected_call_function_many", vector_filter({kVectorCallFunction}));
  add("ipi_injected_call_function_single", vector_filter({kVectorCallFunctionSingle}));
  add("ipi_injected_other", other_ipi_filter());
  add("timer_interrupts", vector_filter({kVectorLocalTimer}));
  return specs;
}

std::vector<CounterSpec> thread_counter_specs(const Tracepoints& tracepoints, const TraceGroups& groups) {
  std::vector<CounterSpec> specs;
  if (groups.ipi_senders) {
    specs.push_back(spec("ipi_sent_reschedule", kAccept, vector_filter({kVectorReschedule})));
    specs.push_back(
        spec("ipi_sent_call_function", kAccept, vector_filter({kVectorCallFunction, kVectorCallFunctionSingle})));
    specs.push_back(spec("ipi_sent_other", kAccept, other_ipi_filter()));
    specs.push_back(spec("icr_writes", kIcr, {}));
    specs.push_back(spec("icr_writes_reschedule", kIcr, icr_filter(kVectorReschedule)));
    specs.push_back(spec("icr_writes_call_function", kIcr, call_function_icr_filter()));
    specs.push_back(spec("pv_ipi_hypercalls", "kvm_hypercall", fmt::format("nr=={}", kHypercallSendIpi)));
  }
  if (groups.injections) {
    const TraceEvent* inject = tracepoints.find(kInject);
    // `irq` until 5.19, `vector` with `soft` and `reinjected` since 6.0.
    const std::string_view vector = inject != nullptr && inject->has_field("irq") ? "irq" : "vector";
    const std::string reschedule = fmt::format("{}=={:#x}", vector, kVectorReschedule);
    const std::string call_function =
        fmt::format("({0}=={1:#x} || {0}=={2:#x})", vector, kVectorCallFunction, kVectorCallFunctionSingle);
    specs.push_back(spec("virq_injections", kInject, {}));
    specs.push_back(spec("virq_injections_reschedule", kInject, reschedule));
    specs.push_back(spec("virq_injections_call_function", kInject, call_function));
    if (inject == nullptr || inject->has_field("reinjected")) {
      specs.push_back(spec("ipi_reinjected_reschedule", kInject, reschedule + " && reinjected==1"));
      specs.push_back(spec("ipi_reinjected_call_function", kInject, call_function + " && reinjected==1"));
    }
  }
  if (groups.exit_reasons) {
    specs.push_back(spec("exits_traced", "kvm_exit", {}));
    for (const ExitClass exit_class : kNamedExitClasses) {
      specs.push_back(spec(fmt::format("exits_by_reason.{}", name_of(exit_class)), "kvm_exit",
                           exit_filter(tracepoints.isa(), exit_class)));
    }
  }
  if (groups.hlt_exits && !groups.exit_reasons) {
    specs.push_back(spec("exits_by_reason.hlt", "kvm_exit", exit_filter(tracepoints.isa(), ExitClass::kHlt)));
  }
  if (groups.wakeups) {
    specs.push_back(spec("halt_wakeups_traced", "kvm_vcpu_wakeup", {}));
    specs.push_back(spec("halts_blocked", "kvm_vcpu_wakeup", "waited==1"));
  }
  return specs;
}

void derive_trace_counters(VcpuSnapshot& into) {
  auto& counters = into.counters;
  const auto has = [&](std::string_view name) { return counters.contains(name); };
  const auto set = [&](std::string name, Value value) { counters.insert_or_assign(std::move(name), std::move(value)); };
  const auto get = [&](std::string_view name) { return into.counter(name); };

  if (has("ipi_injected_call_function_many")) {
    const Value call_function = sum(get("ipi_injected_call_function_many"), get("ipi_injected_call_function_single"));
    set("ipi_injected_call_function", call_function);
    set("ipi_injected", sum(sum(get("ipi_injected_reschedule"), call_function), get("ipi_injected_other")));
  }
  if (has("ipi_sent_reschedule")) {
    set("ipi_sent", sum(sum(get("ipi_sent_reschedule"), get("ipi_sent_call_function")), get("ipi_sent_other")));
  }
  if (has("icr_writes")) {
    set("icr_writes_other",
        remainder(get("icr_writes"), sum(get("icr_writes_reschedule"), get("icr_writes_call_function"))));
  }
  if (has("virq_injections") && has("ipi_injected_reschedule")) {
    for (const std::string kind : {"reschedule", "call_function"}) {
      const Value accepted = get("ipi_injected_" + kind);
      const Value injected = get("virq_injections_" + kind);
      if (!has("ipi_reinjected_" + kind)) {
        // Without the field: exact only while nothing coalesces, since accepted = injected - reinjected + coalesced.
        set("ipi_reinjected_" + kind, remainder(injected, accepted));
        set("ipi_coalesced_" + kind, trace_null("this kernel's kvm_inj_virq does not tell re-injections"));
        continue;
      }
      // While an accepted interrupt is still pending in the IRR it counts as coalesced; marks are taken when none is.
      set("ipi_coalesced_" + kind, remainder(accepted, remainder(injected, get("ipi_reinjected_" + kind))));
    }
  }
  if (has("exits_traced")) {
    Value named = Value::count(0, Source::kTracepoint);
    for (const ExitClass exit_class : kNamedExitClasses) {
      named = sum(named, get(fmt::format("exits_by_reason.{}", name_of(exit_class))));
    }
    set(fmt::format("exits_by_reason.{}", name_of(ExitClass::kOther)), remainder(get("exits_traced"), named));
  }
}

std::string filter_with_threads(const std::string& filter, std::span<const pid_t> threads) {
  std::string any;
  for (const pid_t thread : threads) {
    if (!any.empty()) any += " || ";
    any += fmt::format("common_pid=={}", thread);
  }
  // The event's own terms first: they reject most events with one comparison.
  return filter.empty() ? any : fmt::format("({}) && ({})", filter, any);
}

TraceScope VcpuTraceCounters::choose(TraceScope wanted) const {
  if (wanted != TraceScope::kAutomatic) return wanted;
  if (!tracepoints_.usable() || cpus_.empty() || targets_.size() > kMaxVcpusBoundToCpus) return TraceScope::kThreads;
  // common_pid is the id in the initial PID namespace; in another one gettid() says something else and the filter would
  // never match: a count of 0 that is a lie.
  if (!in_initial_pid_namespace()) return TraceScope::kThreads;
  std::size_t counters = 0;
  for (const auto* all : {&targets_, &threads_}) {
    for (const auto& of_vcpu : *all) counters += of_vcpu.size();
  }
  if (counters * cpus_.size() > max_fds_bound_to_cpus()) return TraceScope::kThreads;
  const TraceEvent* exit = tracepoints_.find("kvm_exit");
  if (exit == nullptr) return TraceScope::kThreads;
  const auto trial = PerfCounter::open(
      {.event_id = exit->id, .filter = "common_pid==0", .thread = -1, .cpu = static_cast<int>(cpus_.front())});
  return trial.counting() ? TraceScope::kCpus : TraceScope::kThreads;
}

std::vector<PerfCounter> VcpuTraceCounters::open(const CounterSpec& wanted, std::span<const pid_t> threads) const {
  const auto refuse = [](std::string reason) {
    std::vector<PerfCounter> none;
    none.emplace_back(std::move(reason));
    return none;
  };
  if (!tracepoints_.usable()) return refuse(tracepoints_.reason());
  if (tracepoints_.apic_virtualization() == ApicVirtualization::kIpiVirtualized && is_ipi_counter(wanted.name)) {
    return refuse("the CPU delivers IPIs without an exit here (AVIC or IPI virtualization): only the guest knows");
  }
  if (tracepoints_.apic_virtualization() != ApicVirtualization::kNone && wanted.event == kInject) {
    return refuse("the CPU delivers interrupts itself here (APICv or AVIC): kvm_inj_virq does not see them");
  }
  const TraceEvent* event = tracepoints_.find(wanted.event);
  if (event == nullptr) return refuse(fmt::format("this kernel has no usable tracepoint kvm:{}", wanted.event));
  std::vector<PerfCounter> parts;
  if (scope_ == TraceScope::kThreads) {
    // 0 for a target: the calling thread, whose children inherit the event.
    parts.push_back(PerfCounter::open({.event_id = event->id,
                                       .filter = wanted.filter,
                                       .thread = wanted.inherit ? 0 : threads.front(),
                                       .inherit = wanted.inherit}));
    return parts;
  }
  for (const unsigned cpu : cpus_) {
    parts.push_back(PerfCounter::open({.event_id = event->id,
                                       .filter = filter_with_threads(wanted.filter, threads),
                                       .thread = -1,
                                       .cpu = static_cast<int>(cpu)}));
  }
  return parts;
}

VcpuTraceCounters::VcpuTraceCounters(const Tracepoints& tracepoints, unsigned vcpus, const TraceGroups& groups,
                                     TraceScope scope)
    : tracepoints_(tracepoints), cpus_(online_cpus()), tids_(vcpus, 0), targets_(vcpus), threads_(vcpus) {
  const std::string not_yet =
      tracepoints_.usable() ? std::string("the vCPU's thread is not attached") : tracepoints_.reason();
  const auto add = [&](std::vector<Counter>& to, CounterSpec wanted) {
    Counter counter{std::move(wanted), {}};
    counter.parts.emplace_back(not_yet);
    to.push_back(std::move(counter));
  };
  for (unsigned vcpu = 0; vcpu < vcpus; ++vcpu) {
    for (CounterSpec& wanted : target_counter_specs(vcpu, groups)) add(targets_[vcpu], std::move(wanted));
    for (CounterSpec& wanted : thread_counter_specs(tracepoints_, groups)) add(threads_[vcpu], std::move(wanted));
  }
  scope_ = choose(scope);
  if (scope_ == TraceScope::kCpus) return;
  for (auto& of_vcpu : targets_) {
    for (Counter& counter : of_vcpu) counter.parts = open(counter.spec, {});
  }
}

void VcpuTraceCounters::attach_thread(unsigned vcpu, pid_t thread) {
  tids_.at(vcpu) = thread;
  for (Counter& counter : threads_.at(vcpu)) counter.parts = open(counter.spec, std::span(&thread, 1));
  if (scope_ == TraceScope::kThreads || std::ranges::find(tids_, 0) != tids_.end()) return;
  // The last one: now the threads are known in which a target's event can fire.
  for (auto& of_vcpu : targets_) {
    for (Counter& counter : of_vcpu) counter.parts = open(counter.spec, tids_);
  }
}

void VcpuTraceCounters::read_into(VcpuSnapshot& into) const {
  for (const auto* counters : {&targets_.at(into.id), &threads_.at(into.id)}) {
    for (const Counter& counter : *counters) {
      Value total = Value::count(0, Source::kTracepoint);
      for (const PerfCounter& part : counter.parts) total = sum(total, part.read());
      into.counters.insert_or_assign(counter.spec.name, std::move(total));
    }
  }
  derive_trace_counters(into);
  null_silent_tracepoints(into);
}

std::size_t VcpuTraceCounters::open_fds() const noexcept {
  std::size_t open = 0;
  for (const auto* all : {&targets_, &threads_}) {
    for (const auto& of_vcpu : *all) {
      for (const Counter& counter : of_vcpu) {
        for (const PerfCounter& part : counter.parts) open += part.counting() ? 1 : 0;
      }
    }
  }
  return open;
}

}  // namespace vmm::stats
