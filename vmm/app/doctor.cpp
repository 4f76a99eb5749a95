// SPDX-License-Identifier: Apache-2.0
#include "app/doctor.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "experiment/guest_run.hpp"
#include "experiment/run.hpp"
#include "kvm/capabilities.hpp"
#include "kvm/kvm.hpp"
#include "stats/perf_counter.hpp"
#include "stats/tracepoints.hpp"

namespace vmm::app {
namespace {

constexpr std::uint64_t kProbeTimeoutMs = 10'000;

// Trials by small payloads: whether this KVM executes what a Linux kernel executes early. CPU flags do not tell.
struct Probe {
  const char* payload;
  unsigned vcpus;
  std::uint64_t disable_exits;
  std::string_view what;
  bool needed_by_linux;
};
constexpr std::array kProbes = {
    Probe{"probe-int3", 1, 0, "INT3 and an exception handler (the kernel patches itself with it)", true},
    Probe{"probe-cmpxchg16b", 1, 0, "CMPXCHG16B (the slab allocator)", true},
    Probe{"probe-xsave", 1, 0, "XSAVE and XRSTOR round trip (every context switch)", true},
    Probe{"probe-ipi", 2, 0, "an IPI between two vCPUs", true},
    Probe{"probe-hlt", 1, 0, "HLT and a wake-up by the local APIC's timer", true},
    Probe{"exit-value", 1, KVM_X86_DISABLE_EXITS_HLT, "--disable-exits=hlt enters the guest", false},
};

struct Finding {
  std::string name;
  std::optional<bool> ok;  // nothing: could not be tried
  std::string detail;
  bool needed = false;
};

Finding try_probe(const Probe& probe) {
  Finding finding{probe.payload, std::nullopt, std::string(probe.what), probe.needed_by_linux};
  if (probe.disable_exits != 0) finding.name = "disable-exits";
  try {
    experiment::GuestRunConfig config;
    config.guest.payload = base::NamedParameters{probe.payload, {}};
    config.guest.cpus = probe.vcpus;
    config.guest.memory_bytes = 64ULL << 20;
    config.guest.disable_exits = probe.disable_exits;
    config.console = {experiment::ConsoleConfig::Kind::kOff, {}};
    config.timeout_ms = kProbeTimeoutMs;
    experiment::GuestRun run(config);
    run.start();
    run.wait_for_stop();
    const experiment::GuestRun::End end = run.end();
    finding.ok = end.stop.kind == machine::Stop::Kind::kPayloadExit && end.stop.value == 0;
    if (!*finding.ok) finding.detail += ": " + end.stop.what;
  } catch (const base::Error& error) {
    finding.detail += std::string(": not tried: ") + error.what();
  }
  return finding;
}

std::vector<Finding> find_capabilities(const kvm::System& system) {
  std::vector<Finding> findings;
  for (const kvm::Capability& capability : kvm::kCapabilities) {
    const int value = system.extension(capability.number);
    findings.push_back(
        {std::string(capability.name), value != 0,
         value > 1 ? fmt::format("{} ({})", capability.used_for, value) : std::string(capability.used_for),
         capability.need == kvm::Need::kRequired});
  }
  return findings;
}

const char* mark(const Finding& finding) {
  if (!finding.ok) return "?";
  return *finding.ok ? "yes" : "NO";
}

void append_section(std::string& text, std::string_view title, const std::vector<Finding>& findings) {
  text += fmt::format("{}\n", title);
  for (const Finding& finding : findings) {
    text += fmt::format("  {:<4} {:<31} {}\n", mark(finding), finding.name, finding.detail);
  }
}

nlohmann::ordered_json to_json(const std::vector<Finding>& findings) {
  auto list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"name", finding.name},
                    {"ok", finding.ok ? nlohmann::ordered_json(*finding.ok) : nlohmann::ordered_json(nullptr)},
                    {"detail", finding.detail},
                    {"needed", finding.needed}});
  }
  return list;
}

}  // namespace

int doctor(const DoctorCommand& command) {
  const kvm::System system(command.device);
  const std::vector<Finding> capabilities = find_capabilities(system);
  std::vector<Finding> trials;
  for (const Probe& probe : kProbes) trials.push_back(try_probe(probe));

  const stats::Tracepoints tracepoints = stats::Tracepoints::probe();
  std::vector<Finding> measurement;
  measurement.push_back({"tracepoints", tracepoints.usable(),
                         tracepoints.usable() ? "IPIs, exits by reason" : tracepoints.reason(), false});
  const bool halt_poll = system.extension(KVM_CAP_HALT_POLL) > 0;
  measurement.push_back({"host halt-poll", halt_poll,
                         halt_poll ? "--host-halt-poll sets it per VM; its effect shows in halt_polls_attempted"
                                   : "KVM_CAP_HALT_POLL came with Linux 5.10",
                         false});

  const auto lacking = [](const Finding& finding) { return finding.needed && finding.ok != true; };
  const bool linux_runs = std::ranges::none_of(capabilities, lacking) && std::ranges::none_of(trials, lacking);
  const std::string verdict = linux_runs ? "A Linux guest can run directly on this host."
                                         : "A Linux guest cannot run directly on this host: what is marked NO above is "
                                           "needed. Bare-metal payloads can "
                                           "(`vmm --payload ipi-pingpong`); Linux guests run in the nested host: "
                                           "`tests/nested/nested-host -- vmm ...`.";

  std::string out;
  if (command.json) {
    const nlohmann::ordered_json json{{"schema", "vmm.doctor/1"},  {"host", experiment::host_json()},
                                      {"linux_guest", linux_runs}, {"capabilities", to_json(capabilities)},
                                      {"trials", to_json(trials)}, {"measurement", to_json(measurement)}};
    out = json.dump(2) + "\n";
  } else {
    append_section(out, fmt::format("KVM capabilities ({})", command.device), capabilities);
    append_section(out, "Tried with small payloads", trials);
    append_section(out, "Measurement", measurement);
    out += verdict + "\n";
  }
  (void)base::write_all(STDOUT_FILENO, out);
  return static_cast<int>(linux_runs ? base::ExitStatus::kOk : base::ExitStatus::kHostUnable);
}

}  // namespace vmm::app
