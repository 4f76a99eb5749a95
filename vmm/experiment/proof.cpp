// SPDX-License-Identifier: Apache-2.0
#include "experiment/proof.hpp"

#include <fmt/format.h>
#include <linux/kvm.h>

#include "base/parse.hpp"

namespace vmm::experiment {
namespace {

using Snapshots = std::span<const stats::VcpuSnapshot>;

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto field = object.find(key);
  if (field == object.end() || field->is_null()) return "unknown";
  return field->is_string() ? field->get<std::string>() : field->dump();
}

std::optional<double> total(Snapshots vcpus, const char* counter) {
  return stats::sum_over_vcpus(vcpus, counter).real();
}

std::string shown(std::optional<double> count) {
  return count ? fmt::format("{:.0f}", *count) : std::string("unknown");
}

// Asked spins must be seen, and none where none was asked. A guest too busy to be idle even once cannot be told apart.
Proof prove_spin(const GuestConfig& asked, const nlohmann::json& configured, Snapshots vcpus) {
  const std::uint64_t us = asked.guest_spin_us.value_or(0);
  Proof proof{"idle_spin", base::format_duration_ns(us * 1000), {}, std::nullopt};
  const auto hits = total(vcpus, "guest_spin_hits");
  const auto misses = total(vcpus, "guest_spin_misses");
  const auto spins = hits && misses ? std::optional(*hits + *misses) : std::nullopt;
  const auto back = configured.find("idle_spin_us");
  const bool read_back = back != configured.end() && back->is_number_unsigned() && back->get<std::uint64_t>() == us;
  proof.seen = fmt::format("{} us read back; {} spins", text_of(configured, "idle_spin_us"), shown(spins));
  if (spins) proof.holds = read_back && (us > 0) == (*spins > 0);
  return proof;
}

Proof prove_idle(const GuestConfig& asked, const nlohmann::json& hello) {
  Proof proof{"idle method", asked.guest_idle ? name_of(*asked.guest_idle) : "the kernel's own", {}, std::nullopt};
  const std::string driver = text_of(hello, "idle_driver");
  const std::string cmdline = " " + text_of(hello, "cmdline") + " ";
  proof.seen = fmt::format("cpuidle driver {}, governor {}", driver, text_of(hello, "idle_governor"));
  const auto told = [&](std::string_view word) { return cmdline.find(fmt::format(" {} ", word)) != std::string::npos; };
  switch (asked.guest_idle.value_or(GuestIdle::kHalt)) {
    case GuestIdle::kHaltpoll:
      proof.holds = driver == "haltpoll";
      break;
    case GuestIdle::kPoll:
      proof.holds = told("idle=poll");
      proof.seen += proof.holds == true ? ", idle=poll on its command line" : ", no idle=poll on its command line";
      break;
    case GuestIdle::kMwait:
      // The kernel says "using mwait in idle threads" in its log only; HLT exits, below, are what shows it.
      proof.seen += "; MWAIT is seen by the HLT exits only";
      break;
    case GuestIdle::kHalt:
      proof.holds = driver != "haltpoll" && !told("idle=poll");
      break;
  }
  return proof;
}

Proof prove_host_poll(const GuestConfig& asked, const nlohmann::json& hello, Snapshots vcpus) {
  const std::uint64_t ns = asked.host_halt_poll_ns.value_or(0);
  Proof proof{"host halt-poll", base::format_duration_ns(ns), {}, std::nullopt};
  const auto polls = total(vcpus, "halt_polls_attempted");
  const auto halts = total(vcpus, "hlt_exits");
  proof.seen = fmt::format("{} polls attempted of {} HLT exits", shown(polls), shown(halts));
  if (!polls || !halts) return proof;
  if (ns == 0) {
    proof.holds = *polls == 0;
  } else if (*polls > 0) {
    proof.holds = true;
  } else if (text_of(hello, "idle_driver") == "haltpoll") {
    proof.seen += "; off by guest (MSR_KVM_POLL_CONTROL)";
  } else if (*halts == 0) {
    proof.seen += "; nothing to poll for";
  } else {
    proof.holds = false;
  }
  return proof;
}

// A guest that never executes HLT, or whose HLT does not exit.
std::optional<Proof> prove_no_halt_exits(const GuestConfig& asked, Snapshots vcpus) {
  const bool passed = (asked.disable_exits & KVM_X86_DISABLE_EXITS_HLT) != 0;
  const bool polls = asked.guest_idle == GuestIdle::kPoll;
  const bool mwait = asked.guest_idle == GuestIdle::kMwait;
  if (!passed && !polls && !mwait) return std::nullopt;
  // Pass-through leaves none at all. Idle CPUs that poll or MWAIT execute no HLT either, but a CPU that waits for a
  // contended spinlock may (kvm_wait() in arch/x86/kernel/kvm.c): now and then, where idle ones would by the thousand.
  constexpr double kSpinlockWaits = 20;
  const double allowed = passed ? 0 : kSpinlockWaits;
  const auto halts = total(vcpus, "hlt_exits");
  Proof proof{"HLT exits", allowed == 0 ? "0" : fmt::format("at most {}", allowed),
              fmt::format("{} HLT exits", shown(halts)), std::nullopt};
  if (halts) proof.holds = *halts <= allowed;
  return proof;
}

}  // namespace

std::vector<Proof> prove(const GuestConfig& asked, const nlohmann::json& hello, const nlohmann::json& configured,
                         Snapshots vcpus) {
  std::vector<Proof> proofs{prove_spin(asked, configured, vcpus), prove_idle(asked, hello),
                            prove_host_poll(asked, hello, vcpus)};
  if (auto proof = prove_no_halt_exits(asked, vcpus)) proofs.push_back(std::move(*proof));
  if (asked.guest_halt_poll_ns) {
    const auto back = configured.find("guest_halt_poll_ns");
    Proof proof{"guest_halt_poll_ns", base::format_duration_ns(*asked.guest_halt_poll_ns),
                fmt::format("{} ns read back", text_of(configured, "guest_halt_poll_ns")), std::nullopt};
    proof.holds = back != configured.end() && back->is_number_unsigned() &&
                  back->get<std::uint64_t>() == *asked.guest_halt_poll_ns;
    proofs.push_back(std::move(proof));
  }
  return proofs;
}

nlohmann::ordered_json to_json(const Proof& proof) {
  return {{"what", proof.what},
          {"asked", proof.asked},
          {"seen", proof.seen},
          {"holds", proof.holds ? nlohmann::ordered_json(*proof.holds) : nlohmann::ordered_json(nullptr)}};
}

}  // namespace vmm::experiment
