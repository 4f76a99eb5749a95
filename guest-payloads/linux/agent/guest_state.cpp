// SPDX-License-Identifier: Apache-2.0
#include "agent/guest_state.hpp"

#include <map>
#include <stdexcept>
#include <sys/utsname.h>

#include "cpu_list.hpp"
#include "idle_spin_stats.hpp"
#include "proc_interrupts.hpp"
#include "timer_list.hpp"

namespace guest {
namespace {

Json or_null(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json(nullptr);
}
Json or_null(const std::optional<std::uint64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Interrupts read_interrupts(const Files& files) {
  const auto text = files.read("/proc/interrupts");
  if (!text) throw std::runtime_error("/proc/interrupts cannot be read");
  auto interrupts = parse_interrupts(*text);
  if (!interrupts) throw std::runtime_error("/proc/interrupts is no table of CPUs");
  return std::move(*interrupts);
}

std::vector<unsigned> online_cpus(const Files& files) {
  const auto text = files.read_line("/sys/devices/system/cpu/online");
  const auto cpus = text ? parse_cpu_list(*text) : std::nullopt;
  return cpus.value_or(std::vector<unsigned>{});
}

}  // namespace

TimerState read_timer_state(const Files& files) {
  TimerState state;
  const auto text = files.read("/proc/timer_list");
  const auto timers = parse_timer_list(text.value_or(""));
  const std::vector<unsigned> online = online_cpus(files);
  state.hres_active = !online.empty();
  state.cpus = Json::array();
  for (const unsigned cpu : online) {
    const auto found = timers.find(cpu);
    const CpuTimers of_cpu = found == timers.end() ? CpuTimers{} : found->second;
    state.hres_active = state.hres_active && of_cpu.hres_active;
    const std::string name = of_cpu.clock_event.empty() ? "unknown" : of_cpu.clock_event;
    if (state.clock_event.empty()) state.clock_event = name;
    if (state.clock_event != name) state.clock_event = "mixed";
    state.cpus.push_back({{"id", cpu}, {"hres_active", of_cpu.hres_active}, {"clock_event", name}});
  }
  if (state.clock_event.empty()) state.clock_event = "unknown";
  return state;
}

Json describe_guest(const Files& files) {
  utsname name{};
  uname(&name);
  const TimerState timers = read_timer_state(files);
  const std::vector<unsigned> online = online_cpus(files);
  const auto version = files.read_line("/proc/version");
  const std::string idle = "/sys/devices/system/cpu/cpuidle/";
  auto governor = files.read_line(idle + "current_governor_ro");
  if (!governor) governor = files.read_line(idle + "current_governor");

  Json knobs = Json::array();
  if (files.exists(kIdleSpinKnob)) knobs.push_back("idle_spin");
  if (files.exists("/sys/kernel/debug/idle_spin/record_gaps")) knobs.push_back("record_gaps");
  if (files.exists("/sys/module/haltpoll/parameters/guest_halt_poll_ns")) knobs.push_back("guest_halt_poll");
  if (files.exists("/sys/kernel/timer_softirq/mode")) knobs.push_back("timer_softirq");

  Json result;
  result["kernel"] = name.release;
  result["kernel_version"] = or_null(version);
  result["preempt_rt"] = version ? Json(version->find("PREEMPT_RT") != std::string::npos) : Json(nullptr);
  result["cpus"] = online.size();
  result["hres_active"] = timers.hres_active;
  result["clock_event"] = timers.clock_event;
  result["timers"] = timers.cpus;
  result["clocksource"] = or_null(files.read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
  result["idle_driver"] = or_null(files.read_line(idle + "current_driver"));
  result["idle_governor"] = or_null(governor);
  result["isolated"] = or_null(files.read_line("/sys/devices/system/cpu/isolated"));
  result["cmdline"] = or_null(files.read_line("/proc/cmdline"));
  result["knobs"] = knobs;
  return result;
}

Json read_counters(const Files& files) {
  const Interrupts interrupts = read_interrupts(files);
  const auto text = files.read(kIdleSpinStats);
  const auto spins = parse_idle_spin_stats(text.value_or(""));
  Json cpus = Json::array();
  for (const unsigned cpu : interrupts.cpus) {
    const auto found = spins.find(cpu);
    const IdleSpinStats spin = found == spins.end() ? IdleSpinStats{} : found->second;
    Json entry;
    entry["id"] = cpu;
    entry["ipi_call_function_all"] = or_null(interrupts.value("CAL", cpu));
    entry["ipi_reschedule"] = or_null(interrupts.value("RES", cpu));
    entry["timer_interrupts"] = or_null(interrupts.value("LOC", cpu));
    entry["tlb_flushes"] = or_null(interrupts.value("TLB", cpu));
    entry["irq_work_interrupts"] = or_null(interrupts.value("IWI", cpu));
    entry["spin_hits_remote"] = or_null(spin.remote_hits);
    entry["spin_hits_local"] = or_null(spin.local_hits);
    entry["spin_misses"] = or_null(spin.misses);
    entry["spin_ns"] = or_null(spin.spin_ns);
    entry["idle_gap_ns_log2"] = spin.gaps.empty() ? Json(nullptr) : Json(spin.gaps);
    cpus.push_back(std::move(entry));
  }
  Json result;
  result["vcpus"] = std::move(cpus);
  return result;
}

std::vector<std::uint64_t> read_ipi_counts(const Files& files) {
  const Interrupts interrupts = read_interrupts(files);
  std::vector<std::uint64_t> counts;
  for (const char* row : {"RES", "CAL"}) {
    const auto found = interrupts.rows.find(row);
    if (found == interrupts.rows.end()) continue;  // a kernel without SMP has no IPIs
    counts.insert(counts.end(), found->second.begin(), found->second.end());
  }
  return counts;
}

}  // namespace guest
