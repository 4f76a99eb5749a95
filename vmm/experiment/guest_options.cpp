// SPDX-License-Identifier: Apache-2.0
#include "experiment/guest_options.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "base/error.hpp"
#include "experiment/workload_file.hpp"
#include "machine/machine.hpp"
#include "memory/layout.hpp"

namespace vmm::experiment {
namespace {

using base::BadInput;
namespace layout = memory::layout;

constexpr std::uint64_t kHaltPollMaximumNs = 1'000'000'000;
constexpr unsigned kHostCpusMaximum = 8192;

constexpr std::array<GuestOption, 15> kOptions{{
    {"kernel", "FILE", "bzImage or ELF vmlinux, told apart by content [the built guest]"},
    {"initrd", "FILE", "initial RAM disk"},
    {"cmdline", "STR", "kernel command line; appended to the default with the built guest"},
    {"payload", "NAME|FILE[:key=value,…]", "a bare-metal payload instead of a kernel"},
    {"cpus", "N", "vCPUs, 1 to 64 [2]"},
    {"memory", "SIZE", "guest memory, 64M to 512G [256M]"},
    {"pin", "LIST", "host CPU of each vCPU thread, e.g. 0,1"},
    {"guest-spin", "US", "idle_spin, 0 to 1000000 us; also 50us, 1ms"},
    {"guest-idle", "METHOD", "idle method: halt, haltpoll, poll, mwait"},
    {"guest-halt-poll", "NS", "haltpoll governor's guest_halt_poll_ns, 0 to 1s"},
    {"host-halt-poll", "NS", "this VM's halt_poll_ns, 0 to 1s; also 200us"},
    {"disable-exits", "LIST", "exits the guest keeps: hlt,mwait,pause,cstate"},
    {"irqchip", "WHERE", "where the interrupt controllers live: kernel [kernel]"},
    {"guest", "NAME", "which built guest: lab [lab]"},
    {"workload-file", "FILE", "a static program of one's own as the workload (docs/protocol.md)"},
}};
static_assert(layout::kVcpusMaximum == 64, "the help text says so");

// A size below the minimum is named as such even when it has no suffix.
std::uint64_t memory_option(const std::string& text) {
  const std::uint64_t bytes =
      base::parse_size_bytes("--memory", text, {layout::kMemoryMinimum, layout::kMemoryMaximum});
  if (bytes % layout::kPageBytes != 0) {
    throw BadInput(fmt::format("--memory: '{}' is not a multiple of 4K; {} works", text,
                               base::format_size_bytes(bytes / layout::kPageBytes * layout::kPageBytes)));
  }
  return bytes;
}

GuestIdle idle_option(const std::string& text) {
  for (const GuestIdle idle : {GuestIdle::kHalt, GuestIdle::kHaltpoll, GuestIdle::kPoll, GuestIdle::kMwait}) {
    if (text == name_of(idle)) return idle;
  }
  throw BadInput(fmt::format("--guest-idle: '{}' is none of halt, haltpoll, poll, mwait", text));
}

base::NamedParameters payload_option(const std::string& text) {
  if (text.find('/') == std::string::npos) return base::parse_named_parameters("--payload", text);
  const std::size_t colon = text.find(':', text.rfind('/'));
  base::NamedParameters payload{text.substr(0, colon), {}};
  if (colon != std::string::npos) {
    payload.parameters = base::parse_named_parameters("--payload", "file" + text.substr(colon)).parameters;
  }
  return payload;
}

}  // namespace

std::span<const GuestOption> guest_options() noexcept {
  return kOptions;
}

GuestConfig parse_guest_options(const OptionText& text) {
  GuestConfig guest;
  for (const auto& [name, value] : text) {
    if (std::ranges::find(kOptions, name, &GuestOption::name) == kOptions.end()) {
      throw BadInput(fmt::format("'{}' is no option of a guest; `vmm --help` lists them", name));
    }
    if (value.empty() && name != "cmdline") throw BadInput(fmt::format("--{}: '' is no value", name));
  }
  const auto given = [&](const char* name) -> const std::string* {
    const auto found = text.find(name);
    return found == text.end() ? nullptr : &found->second;
  };
  if (const auto* value = given("payload")) {
    guest.payload = payload_option(*value);
    for (const char* other : {"kernel", "initrd", "cmdline", "guest-idle", "workload-file"}) {
      if (const auto* refused = given(other)) {
        throw BadInput(fmt::format("--{}: '{}' cannot go with --payload, which has no kernel", other, *refused));
      }
    }
  }
  if (const auto* value = given("kernel")) guest.kernel = *value;
  if (const auto* value = given("initrd")) guest.initrd = *value;
  if (const auto* value = given("cmdline")) guest.cmdline = *value;
  if (const auto* value = given("cpus")) {
    guest.cpus = static_cast<unsigned>(base::parse_integer("--cpus", *value, {1, layout::kVcpusMaximum}));
  }
  if (const auto* value = given("memory")) guest.memory_bytes = memory_option(*value);
  if (const auto* value = given("pin")) {
    guest.pin = base::parse_cpu_list("--pin", *value, kHostCpusMaximum);
    if (guest.pin.size() != guest.cpus) {
      throw BadInput(fmt::format("--pin: '{}' names {} host CPUs for {} vCPUs; one each is needed", *value,
                                 guest.pin.size(), guest.cpus));
    }
  }
  if (const auto* value = given("guest-spin")) guest.guest_spin_us = parse_guest_spin_us(*value);
  if (const auto* value = given("guest-idle")) guest.guest_idle = idle_option(*value);
  if (const auto* value = given("guest-halt-poll")) {
    guest.guest_halt_poll_ns = base::parse_duration_ns("--guest-halt-poll", *value, 1, {0, kHaltPollMaximumNs});
  }
  if (const auto* value = given("host-halt-poll")) {
    guest.host_halt_poll_ns = base::parse_duration_ns("--host-halt-poll", *value, 1, {0, kHaltPollMaximumNs});
  }
  if (const auto* value = given("disable-exits")) guest.disable_exits = machine::parse_disable_exits(*value);
  if (const auto* value = given("workload-file")) {
    if (!guest.initrd.empty()) {
      throw BadInput(fmt::format("--workload-file: '{}' needs the built initramfs; leave --initrd out", *value));
    }
    guest.workload_file = *value;
    (void)workload_name(guest.workload_file);
  }
  if (const auto* value = given("irqchip"); value != nullptr && *value != "kernel") {
    throw BadInput(fmt::format("--irqchip: '{}' is not offered by this version; 'kernel' works", *value));
  }
  if (const auto* value = given("guest"); value != nullptr && *value != "lab") {
    throw BadInput(fmt::format("--guest: '{}' is not a guest of this version; 'lab' works", *value));
  }
  return guest;
}

}  // namespace vmm::experiment
