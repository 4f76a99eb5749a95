// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"
#include "boot/plan.hpp"
#include "kvm/kvm.hpp"
#include "machine/console.hpp"
#include "machine/stop.hpp"
#include "memory/guest_memory.hpp"
#include "stats/vcpu_snapshot.hpp"
#include "vcpu/exit.hpp"

namespace vmm::machine {

struct MachineConfig {
  unsigned cpus = 1;
  std::uint64_t memory_bytes = 256ULL << 20;
  std::vector<unsigned> pin;                       // host CPU by vCPU; empty: not pinned
  std::optional<std::uint64_t> host_halt_poll_ns;  // KVM_CAP_HALT_POLL
  std::uint64_t disable_exits = 0;                 // KVM_X86_DISABLE_EXITS_*
  bool exit_times = false;                         // two samples an exit
  bool light_tracing = false;                      // only HLT exits and IPIs: for measuring time beside counters
  bool hint_realtime = false;                      // KVM_HINTS_REALTIME in the guest's CPUID
  bool mwait = false;                              // the guest sees MWAIT
};

// A VM: memory, buses, vCPUs and their threads, and every source of statistics. Built by the recipe in machine.cpp,
// then started once.
class Machine {
 public:
  using AgentHandler = std::function<std::string(std::string_view line, bool complete)>;

  // Creates the VM and all its vCPUs. Throws HostUnable that names what this host's KVM lacks. `console` must outlive
  // it.
  Machine(const kvm::System& system, const MachineConfig& config, Console& console, AgentHandler agent);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Executes a boot plan: reads the files' segments straight into guest RAM, writes the tables, sets the registers.
  void load(const boot::BootPlan& plan, int kernel_fd, int initrd_fd);

  // Starts the vCPU threads. Call once, in the thread that owns the machine: the counters of IPI targets are inherited
  // from it.
  void start();

  // Asks the VM to stop and returns at once; callable from anywhere, the first reason is kept.
  void request_stop(Stop stop);
  // Called once, in whatever thread, when the first reason comes.
  void on_stop(std::function<void()> callback);
  // Waits for the end of every vCPU thread; the reason.
  Stop join();

  // All sources of every vCPU, live: the vCPUs are not stopped, numbers may be some events apart.
  std::vector<stats::VcpuSnapshot> snapshot();
  // The same at one instant, whatever is under way: for a run that ends early.
  std::vector<stats::VcpuSnapshot> snapshot_paused();
  // The same at one instant: all vCPUs outside KVM_RUN. No value while an IPI is on its way to a vCPU (pending in the
  // IRR of its local APIC): the guest could not have counted it yet.
  std::optional<std::vector<stats::VcpuSnapshot>> snapshot_at_rest();

  // Holds the guest outside KVM_RUN until release(), which tells its clocks (KVM_KVMCLOCK_CTRL). They do not nest; the
  // end of the VM needs no release().
  void hold();
  void release();

  // This VM's halt_poll_ns from now on (KVM_CAP_HALT_POLL). Throws HostUnable where KVM lacks it.
  void set_host_halt_poll_ns(std::uint64_t nanoseconds);

  std::optional<std::uint64_t> tsc_khz() const;
  memory::GuestMemory& memory() noexcept;
  // Registers and instruction bytes of every vCPU, for a diagnosis; the VM must be stopped or is paused for it.
  std::string describe_vcpus();
  // Input for the guest's console; how many bytes it took.
  std::size_t console_input(std::string_view bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// KVM_X86_DISABLE_EXITS_* by name ("hlt,mwait,pause,cstate"). Throws BadInput naming the option and the word.
std::uint64_t parse_disable_exits(std::string_view text);

}  // namespace vmm::machine
