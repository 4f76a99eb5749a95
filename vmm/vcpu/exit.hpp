// SPDX-License-Identifier: Apache-2.0
// What KVM_RUN came back with, as a value. Decoding and dispatch are separate and know no file descriptor, so both are
// tested with synthetic kvm_run pages.
#pragma once

#include <cstdint>
#include <linux/kvm.h>
#include <span>
#include <string>
#include <variant>

#include "devices/bus.hpp"

namespace vmm::vcpu {

// Port I/O (KVM API 5, KVM_EXIT_IO): `data` holds `count` elements of `size` bytes, in the kvm_run mapping.
struct IoExit {
  std::uint16_t port;
  std::uint8_t size;
  bool write;
  std::span<std::byte> data;
};
struct MmioExit {
  std::uint64_t address;
  bool write;
  std::span<std::byte> data;
};
struct HltExit {};
struct ShutdownExit {};  // a triple fault
struct SystemEventExit {
  std::uint32_t type;  // KVM_SYSTEM_EVENT_*
};
struct InternalErrorExit {
  std::uint32_t suberror;
  std::span<const std::uint64_t> data;
};
struct FailEntryExit {
  std::uint64_t hardware_reason;
};
struct UnhandledExit {
  std::uint32_t reason;
};
// KVM's page claims an access that does not lie in the page: no kernel does that.
struct MalformedExit {
  const char* what;
};

using Exit = std::variant<IoExit, MmioExit, HltExit, ShutdownExit, SystemEventExit, InternalErrorExit, FailEntryExit,
                          UnhandledExit, MalformedExit>;

// Decodes the page behind `run`, whose mapping is `mapping_bytes` long. The result points into it.
Exit decode_exit(kvm_run& run, std::size_t mapping_bytes) noexcept;

struct Buses {
  devices::PortBus ports;
  devices::MmioBus mmio;
};

// Why a vCPU cannot go on.
struct Crash {
  enum class Kind { kTripleFault, kInternalError, kFailEntry, kSystemEvent, kUnhandledExit, kRunFailed };
  Kind kind;
  std::string what;  // one line, with the numbers KVM gave
};

// What an exit asks of the loop.
struct Continue {};
struct Halted {};  // HLT with the interrupt controller in user space
using Outcome = std::variant<Continue, Halted, Crash>;

// Serves the exit from the buses. Touches nothing but them and the exit's data.
Outcome dispatch(const Exit& exit, const Buses& buses);

}  // namespace vmm::vcpu
