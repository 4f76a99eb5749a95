// SPDX-License-Identifier: Apache-2.0
#include "vcpu/vcpu_thread.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <fmt/format.h>
#include <signal.h>

#include "base/error.hpp"

namespace vmm::vcpu {
namespace {

void on_kick(int /*signal*/) {}

constexpr std::uint64_t kCr0Paging = 1ULL << 31;
constexpr std::size_t kInstructionBytes = 16;

std::string instruction_bytes(
    const kvm::Vcpu& vcpu, const kvm_sregs& special, std::uint64_t rip,
    const std::function<std::span<const std::byte>(std::uint64_t, std::uint64_t)>& read_memory) {
  const std::uint64_t linear = (special.cs.l != 0 ? 0 : special.cs.base) + rip;
  std::optional<std::uint64_t> physical = linear;
  if ((special.cr0 & kCr0Paging) != 0) physical = vcpu.translate(linear);
  if (!physical) return "not mapped";
  const std::size_t to_page_end = 4096 - (*physical & 4095);
  const auto bytes = read_memory(*physical, std::min(kInstructionBytes, to_page_end));
  if (bytes.empty()) return "outside guest RAM";
  std::string text;
  for (const std::byte byte : bytes)
    text += fmt::format("{}{:02x}", text.empty() ? "" : " ", static_cast<unsigned>(byte));
  return text;
}

}  // namespace

int kick_signal() noexcept {
  return SIGRTMIN;
}

void install_kick_handler() {
  struct sigaction action{};
  action.sa_handler = on_kick;
  if (::sigaction(kick_signal(), &action, nullptr) != 0) base::throw_errno("sigaction of the kick signal");
}

void kick(kvm_run& run, pthread_t thread) noexcept {
  std::atomic_ref(run.immediate_exit).store(1, std::memory_order_seq_cst);
  ::pthread_kill(thread, kick_signal());
}

std::optional<Crash> run_vcpu(kvm::Vcpu& vcpu, RunGate& gate, const Buses& buses) {
  kvm_run& page = vcpu.run_page();
  while (gate.enter(vcpu.id(), page.immediate_exit)) {
    const int result = vcpu.run();
    gate.leave(vcpu.id());
    // EAGAIN: a vCPU that waits for its INIT/SIPI was kicked (KVM API 4.10).
    if (result == -EINTR || result == -EAGAIN) continue;
    if (result < 0) return Crash{Crash::Kind::kRunFailed, fmt::format("KVM_RUN: {}", base::errno_text(-result))};
    Outcome outcome = dispatch(decode_exit(page, vcpu.run_page_bytes()), buses);
    if (auto* crash = std::get_if<Crash>(&outcome)) return std::move(*crash);
    if (std::holds_alternative<Halted>(outcome)) {
      return Crash{Crash::Kind::kUnhandledExit, "a HLT exit, though the local APIC is in the kernel"};
    }
  }
  return std::nullopt;
}

std::string describe_state(const kvm::Vcpu& vcpu,
                           const std::function<std::span<const std::byte>(std::uint64_t, std::uint64_t)>& read_memory) {
  try {
    const kvm_regs r = vcpu.registers();
    const kvm_sregs s = vcpu.special_registers();
    static constexpr std::array kMpStates = {"runnable", "uninitialized", "init received", "halted", "sipi received"};
    const std::uint32_t mp = vcpu.mp_state();
    std::string text =
        fmt::format("vCPU {}: {}, rip {:#018x} cs {:#06x} rflags {:#x}\n", vcpu.id(),
                    mp < kMpStates.size() ? kMpStates[mp] : "in an unknown state", r.rip, s.cs.selector, r.rflags);
    text += fmt::format("  code [{}]\n", instruction_bytes(vcpu, s, r.rip, read_memory));
    text += fmt::format("  rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x}\n", r.rax, r.rbx, r.rcx, r.rdx);
    text += fmt::format("  rsi {:016x} rdi {:016x} rbp {:016x} rsp {:016x}\n", r.rsi, r.rdi, r.rbp, r.rsp);
    text += fmt::format("  r8  {:016x} r9  {:016x} r10 {:016x} r11 {:016x}\n", r.r8, r.r9, r.r10, r.r11);
    text += fmt::format("  r12 {:016x} r13 {:016x} r14 {:016x} r15 {:016x}\n", r.r12, r.r13, r.r14, r.r15);
    text += fmt::format("  cr0 {:x} cr2 {:x} cr3 {:x} cr4 {:x} efer {:x}\n", s.cr0, s.cr2, s.cr3, s.cr4, s.efer);
    return text;
  } catch (const base::Error& error) {
    return fmt::format("vCPU {}: state unknown: {}\n", vcpu.id(), error.what());
  }
}

}  // namespace vmm::vcpu
