// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/parse.hpp"

namespace vmm::experiment {

enum class GuestFlavour { kLab, kRt };
enum class GuestIdle { kHalt, kHaltpoll, kPoll, kMwait };

// What is asked of one guest; every field is an option of design's run table. Times carry their unit.
struct GuestConfig {
  // Exactly one kind of guest: a payload when `payload` is set, else a kernel (the built guest where `kernel` is
  // empty).
  std::optional<base::NamedParameters> payload;
  std::filesystem::path kernel;
  std::filesystem::path initrd;
  std::string cmdline;
  std::filesystem::path workload_file;  // a user's own program, in the built initramfs; empty: none
  GuestFlavour flavour = GuestFlavour::kLab;

  unsigned cpus = 2;
  std::uint64_t memory_bytes = 256ULL << 20;
  std::vector<unsigned> pin;  // host CPU of each vCPU thread; empty: not pinned

  std::optional<std::uint32_t> guest_spin_us;
  std::optional<GuestIdle> guest_idle;
  std::optional<std::uint64_t> guest_halt_poll_ns;
  std::optional<std::uint64_t> host_halt_poll_ns;
  std::uint64_t disable_exits = 0;  // KVM_X86_DISABLE_EXITS_* bits
  bool operator==(const GuestConfig&) const = default;
};

struct ConsoleConfig {
  enum class Kind { kStderr, kStdio, kFile, kOff };
  Kind kind = Kind::kStderr;
  std::filesystem::path file;
};

struct RunConfig {
  GuestConfig guest;
  base::NamedParameters workload{"tcp-pingpong", {}};
  ConsoleConfig console;
  std::optional<std::filesystem::path> stats;  // "-" is standard output
  std::uint64_t stats_interval_ms = 0;         // 0: none
  bool exit_times = false;
  std::uint64_t timeout_ms = 0;        // 0: none
  std::uint64_t watchdog_ms = 30'000;  // 0: none
};

inline constexpr std::uint64_t kGuestSpinMaximumUs = 1'000'000;  // the kernel's own limit: sched/idle_spin

// One value of --guest-spin in microseconds; a bare number is in microseconds too. Throws BadInput.
std::uint32_t parse_guest_spin_us(std::string_view text);

const char* name_of(GuestFlavour flavour) noexcept;
const char* name_of(GuestIdle idle) noexcept;

}  // namespace vmm::experiment
