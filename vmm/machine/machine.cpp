// SPDX-License-Identifier: Apache-2.0
#include "machine/machine.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <latch>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "base/error.hpp"
#include "base/file.hpp"
#include "devices/agent_channel.hpp"
#include "devices/power.hpp"
#include "devices/serial.hpp"
#include "kvm/capabilities.hpp"
#include "machine/vcpu_setup.hpp"
#include "memory/layout.hpp"
#include "stats/exit_times.hpp"
#include "stats/kvm_stats.hpp"
#include "stats/thread_time.hpp"
#include "stats/vcpu_counters.hpp"
#include "vcpu/run_gate.hpp"
#include "vcpu/vcpu_thread.hpp"

namespace vmm::machine {
namespace {

namespace layout = memory::layout;

constexpr std::chrono::milliseconds kJoinPeriod{1};
constexpr std::uint8_t kResetValue = 6;               // FADT RESET_VALUE: SYS_RST | RST_CPU
constexpr std::uint16_t kKeyboardCommandPort = 0x64;  // the 8042's: pulse its reset line
constexpr std::uint8_t kKeyboardPulseReset = 0xfe;
constexpr std::uint8_t kKeyboardStatusIdle = 0x00;

struct DisableExitName {
  std::string_view name;
  std::uint64_t bit;
};
constexpr std::array<DisableExitName, 4> kDisableExits{{{"mwait", KVM_X86_DISABLE_EXITS_MWAIT},
                                                        {"hlt", KVM_X86_DISABLE_EXITS_HLT},
                                                        {"pause", KVM_X86_DISABLE_EXITS_PAUSE},
                                                        {"cstate", KVM_X86_DISABLE_EXITS_CSTATE}}};

// Everything of one vCPU but its registers' content.
struct VcpuSlot {
  explicit VcpuSlot(kvm::Vcpu created) : vcpu(std::move(created)) {}
  kvm::Vcpu vcpu;
  stats::KvmStatsReader stats =
      stats::KvmStatsReader::unavailable("KVM_CAP_BINARY_STATS_FD is not offered (Linux 5.14)");
  std::thread thread;
  std::atomic<pthread_t> handle{};
  std::atomic<pid_t> tid{0};
  std::atomic<bool> live{false};  // the thread may be signalled
  std::atomic<bool> done{false};  // it has left the vCPU loop
};

void pin_thread(pthread_t thread, unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  const int error = ::pthread_setaffinity_np(thread, sizeof set, &set);
  if (error != 0) {
    throw base::BadInput(fmt::format("--pin: host CPU {} cannot be used: {}; `nproc` and `taskset -p $$` say which can",
                                     cpu, base::errno_text(error)));
  }
}

void require_supported_exits(const kvm::Vm& vm, std::uint64_t wanted) {
  const auto supported = static_cast<std::uint64_t>(vm.extension(KVM_CAP_X86_DISABLE_EXITS));
  for (const auto& [name, bit] : kDisableExits) {
    if ((wanted & bit) != 0 && (supported & bit) == 0) {
      throw base::HostUnable(
          fmt::format("--disable-exits: this host's KVM cannot leave {} to the guest (it offers mask {:#x}); "
                      "`vmm doctor` lists what it can",
                      name, supported));
    }
  }
}

}  // namespace

std::uint64_t parse_disable_exits(std::string_view text) {
  std::uint64_t mask = 0;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    const auto* entry = std::ranges::find(kDisableExits, word, &DisableExitName::name);
    if (entry == kDisableExits.end()) {
      throw base::BadInput(fmt::format("--disable-exits: '{}' is none of hlt, mwait, pause, cstate", word));
    }
    mask |= entry->bit;
    if (comma == text.npos) return mask;
    text.remove_prefix(comma + 1);
  }
}

struct Machine::State {
  State(const kvm::System& system_in, const MachineConfig& config_in, Console& console_in)
      : system(system_in),
        config(config_in),
        console(console_in),
        memory(config_in.memory_bytes),
        vm(system_in.create_vm()),
        gate(config_in.cpus, [this](unsigned id) { kick(id); }),
        tracepoints(stats::Tracepoints::probe()) {}

  void create_vm_parts();
  void set_host_halt_poll_ns(std::uint64_t nanoseconds);
  void create_devices(AgentHandler agent);
  void create_vcpus();
  void run(VcpuSlot& slot, std::latch& attached, std::latch& go);
  void kick(unsigned id) {
    VcpuSlot& slot = *slots[id];
    if (slot.live.load(std::memory_order_acquire)) vcpu::kick(slot.vcpu.run_page(), slot.handle.load());
  }
  void request_stop(Stop reason);
  std::vector<stats::VcpuSnapshot> read_all();

  const kvm::System& system;
  MachineConfig config;
  Console& console;
  memory::GuestMemory memory;
  kvm::Vm vm;
  vcpu::Buses buses;
  devices::Serial* serial = nullptr;  // owned by the port bus
  std::vector<std::unique_ptr<VcpuSlot>> slots;
  vcpu::RunGate gate;
  stats::Tracepoints tracepoints;
  std::optional<stats::VcpuTraceCounters> trace;
  std::optional<stats::ExitTimes> exit_times;

  std::mutex stop_mutex;
  std::optional<Stop> stop;
  std::function<void()> stop_callback;
  std::mutex snapshot_mutex;
};

// ---- The recipe: read top to bottom ----

Machine::Machine(const kvm::System& system, const MachineConfig& config, Console& console, AgentHandler agent) {
  system.require_capabilities();
  if (config.cpus > system.maximum_vcpus()) {
    throw base::BadInput(fmt::format("--cpus: {} is more than the {} vCPUs that this host's KVM allows", config.cpus,
                                     system.maximum_vcpus()));
  }
  state_ = std::make_unique<State>(system, config, console);
  state_->create_vm_parts();
  state_->create_devices(std::move(agent));
  state_->create_vcpus();
}

void Machine::State::create_vm_parts() {
  std::uint32_t slot = 0;
  for (const memory::Region& region : memory.regions()) {
    vm.set_memory(slot++, region.address, region.bytes, memory.host_address(region));
  }
  if (vm.extension(KVM_CAP_SET_IDENTITY_MAP_ADDR) > 0) vm.set_identity_map_address(layout::kIdentityMap);
  if (vm.extension(KVM_CAP_SET_TSS_ADDR) > 0) vm.set_tss_address(layout::kTss);
  vm.create_irqchip();
  if (vm.extension(KVM_CAP_PIT2) > 0) vm.create_pit();
  if (config.disable_exits != 0) {
    require_supported_exits(vm, config.disable_exits);
    vm.disable_exits(config.disable_exits);
  }
  if (config.host_halt_poll_ns) set_host_halt_poll_ns(*config.host_halt_poll_ns);
}

void Machine::State::set_host_halt_poll_ns(std::uint64_t nanoseconds) {
  if (vm.extension(KVM_CAP_HALT_POLL) == 0) {
    throw base::HostUnable("--host-halt-poll: this host's KVM has no KVM_CAP_HALT_POLL; Linux 5.10 or later has it");
  }
  vm.set_halt_poll_ns(nanoseconds);
}

void Machine::State::create_devices(AgentHandler agent) {
  auto uart = std::make_unique<devices::Serial>([this](std::uint8_t byte) { console.put(byte); },
                                                [this](bool level) { vm.set_irq_line(layout::kCom1Gsi, level); });
  serial = uart.get();
  const auto reset = [this] { request_stop({Stop::Kind::kReset, "the guest asked for a reset", 0}); };
  const auto power_off = [this] { request_stop({Stop::Kind::kPoweredOff, "guest powered off", 0}); };
  const auto payload_exit = [this](std::uint32_t value) {
    request_stop({Stop::Kind::kPayloadExit, fmt::format("payload ended with value {}", value), value});
  };
  devices::PortBus& ports = buses.ports;
  ports.add(layout::kCom1, 8, std::move(uart));
  ports.add(layout::kPmEventBlock, 6, std::make_unique<devices::AcpiPowerManagement>(layout::kSleepTypeS5, power_off));
  ports.add(layout::kResetPort, 1, std::make_unique<devices::ResetPort>(kResetValue, std::uint8_t{0}, reset));
  ports.add(kKeyboardCommandPort, 1,
            std::make_unique<devices::ResetPort>(kKeyboardPulseReset, kKeyboardStatusIdle, reset));
  ports.add(layout::kPayloadExitPort, 1, std::make_unique<devices::PayloadExit>(payload_exit));
  ports.add(layout::kAgentChannel, devices::AgentChannel::kPorts,
            std::make_unique<devices::AgentChannel>(std::move(agent)));
}

void Machine::State::create_vcpus() {
  const std::vector<boot::CpuidEntry> supported = from_kvm(system.supported_cpuid());
  boot::CpuidPolicy policy;
  policy.vcpus = config.cpus;
  policy.tsc_deadline = vm.extension(KVM_CAP_TSC_DEADLINE_TIMER) > 0;
  policy.hint_realtime = config.hint_realtime;
  policy.mwait = config.mwait ? boot::MwaitPolicy::kGrant : boot::MwaitPolicy::kMask;
  for (unsigned id = 0; id < config.cpus; ++id) {
    slots.push_back(std::make_unique<VcpuSlot>(vm.create_vcpu(id)));
    VcpuSlot& slot = *slots.back();
    policy.vcpu = id;
    slot.vcpu.set_cpuid(to_kvm(boot::guest_cpuid(supported, policy)));
    apply_firmware_state(slot.vcpu);
    if (auto fd = slot.vcpu.stats_fd()) slot.stats = stats::KvmStatsReader(std::move(*fd));
  }
}

void Machine::load(const boot::BootPlan& plan, int kernel_fd, int initrd_fd) {
  const memory::GuestMemory& memory = state_->memory;
  for (const boot::FileSegment& segment : plan.segments) {
    const bool kernel = segment.file == boot::PlanFile::kKernel;
    base::read_exact(kernel ? kernel_fd : initrd_fd, segment.file_offset,
                     memory.require(segment.address, segment.bytes, kernel ? "--kernel" : "--initrd"),
                     kernel ? "--kernel" : "--initrd");
  }
  for (const boot::Blob& blob : plan.blobs) memory.write(blob.address, blob.bytes, blob.name);
  for (const auto& slot : state_->slots) {
    const unsigned id = slot->vcpu.id();
    if (id < plan.registers.size()) {
      apply_registers(slot->vcpu, plan.registers[id]);
      slot->vcpu.set_mp_state(KVM_MP_STATE_RUNNABLE);  // a payload's vCPUs need no INIT and SIPI
    }
  }
}

void Machine::start() {
  State& s = *state_;
  vcpu::install_kick_handler();
  s.trace.emplace(s.tracepoints, s.config.cpus,
                  s.config.light_tracing ? stats::TraceGroups::light() : stats::TraceGroups{});
  if (s.config.exit_times) s.exit_times.emplace(s.tracepoints, s.config.cpus);
  // Shared with the threads, which outlive this call.
  const auto attached = std::make_shared<std::latch>(s.config.cpus);
  const auto go = std::make_shared<std::latch>(1);
  try {
    for (const auto& slot : s.slots) {
      slot->thread = std::thread([&s, &slot = *slot, attached, go] { s.run(slot, *attached, *go); });
    }
    attached->wait();
    for (const auto& slot : s.slots) {
      const unsigned id = slot->vcpu.id();
      if (!s.config.pin.empty()) pin_thread(slot->handle.load(), s.config.pin.at(id));
      s.trace->attach_thread(id, slot->tid.load());
      if (s.exit_times) s.exit_times->attach_thread(id, slot->tid.load());
    }
  } catch (const std::system_error& error) {
    // Those that were started wait for "go": they must be let go to be joined.
    s.gate.request_stop();
    go->count_down();
    throw base::SystemError("creation of a vCPU thread", error.code().value());
  } catch (...) {
    s.gate.request_stop();
    go->count_down();
    throw;
  }
  go->count_down();
}

void Machine::State::run(VcpuSlot& slot, std::latch& attached, std::latch& go) {
  const std::string name = fmt::format("vcpu{}", slot.vcpu.id());
  ::pthread_setname_np(::pthread_self(), name.c_str());
  slot.handle.store(::pthread_self());
  slot.tid.store(::gettid());
  slot.live.store(true, std::memory_order_release);
  attached.count_down();
  go.wait();
  if (const auto crash = vcpu::run_vcpu(slot.vcpu, gate, buses)) {
    request_stop({Stop::Kind::kCrashed, fmt::format("vCPU {}: {}", slot.vcpu.id(), crash->what), 0});
  }
  slot.done.store(true);
}

// ---- The end ----

void Machine::State::request_stop(Stop reason) {
  std::function<void()> callback;
  {
    const std::lock_guard lock(stop_mutex);
    if (stop) return;
    stop = std::move(reason);
    callback = stop_callback;
  }
  console.give_up_blocking();
  gate.request_stop();
  if (callback) callback();
}

void Machine::request_stop(Stop stop) {
  state_->request_stop(std::move(stop));
}

void Machine::on_stop(std::function<void()> callback) {
  {
    const std::lock_guard lock(state_->stop_mutex);
    if (!state_->stop) {
      state_->stop_callback = std::move(callback);
      return;
    }
  }
  callback();
}

Stop Machine::join() {
  State& s = *state_;
  {
    // Until the first reason comes the vCPUs run; the loop below only reaps.
    std::unique_lock lock(s.stop_mutex);
    if (!s.stop) s.stop = Stop{Stop::Kind::kFinished, "ended by the VMM", 0};
  }
  s.gate.stop();
  for (const auto& slot : s.slots) {
    if (!slot->thread.joinable()) continue;
    // Outside KVM_RUN it may still be blocked in a write of the console, whose reader is gone: the signal ends that.
    while (!slot->done.load()) {
      if (slot->live.load()) ::pthread_kill(slot->handle.load(), vcpu::kick_signal());
      std::this_thread::sleep_for(kJoinPeriod);
    }
    slot->thread.join();
    slot->live.store(false);
  }
  s.console.flush();
  const std::lock_guard lock(s.stop_mutex);
  return *s.stop;
}

Machine::~Machine() {
  if (state_) (void)join();
}

// ---- Statistics ----

std::vector<stats::VcpuSnapshot> Machine::State::read_all() {
  const std::lock_guard lock(snapshot_mutex);
  std::vector<stats::VcpuSnapshot> result;
  for (const auto& slot : slots) {
    stats::VcpuSnapshot snapshot;
    snapshot.id = slot->vcpu.id();
    stats::merge_kvm_stats(snapshot, slot->stats.read());
    if (trace) trace->read_into(snapshot);
    if (exit_times) exit_times->read_into(snapshot);
    stats::merge_thread_time(snapshot, slot->tid.load());
    result.push_back(std::move(snapshot));
  }
  return result;
}

std::vector<stats::VcpuSnapshot> Machine::snapshot() {
  return state_->read_all();
}

std::vector<stats::VcpuSnapshot> Machine::snapshot_paused() {
  const vcpu::Pause pause(state_->gate);
  return state_->read_all();
}

std::optional<std::vector<stats::VcpuSnapshot>> Machine::snapshot_at_rest() {
  State& s = *state_;
  const vcpu::Pause pause(s.gate);
  const bool pending =
      std::ranges::any_of(s.slots, [](const auto& slot) { return ipi_pending(slot->vcpu.local_apic()); });
  if (pending) return std::nullopt;
  return s.read_all();
}

void Machine::hold() {
  state_->gate.pause();
}

void Machine::release() {
  // So that the guest's soft-lockup watchdog forgives the gap; refused for a guest without a kvmclock, which is fine.
  for (const auto& slot : state_->slots) (void)slot->vcpu.clock_control();
  state_->gate.resume();
}

void Machine::set_host_halt_poll_ns(std::uint64_t nanoseconds) {
  state_->set_host_halt_poll_ns(nanoseconds);
}

// ---- The rest ----

std::optional<std::uint64_t> Machine::tsc_khz() const {
  return state_->slots.front()->vcpu.tsc_khz();
}

memory::GuestMemory& Machine::memory() noexcept {
  return state_->memory;
}

std::string Machine::describe_vcpus() {
  State& s = *state_;
  const vcpu::Pause pause(s.gate);
  std::string text;
  for (const auto& slot : s.slots) {
    text += vcpu::describe_state(slot->vcpu, [&s](std::uint64_t address, std::uint64_t bytes) {
      return std::span<const std::byte>(s.memory.at(address, bytes));
    });
  }
  return text;
}

std::size_t Machine::console_input(std::string_view bytes) {
  return state_->serial->receive(bytes);
}

}  // namespace vmm::machine
