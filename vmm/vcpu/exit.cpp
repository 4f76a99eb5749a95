// SPDX-License-Identifier: Apache-2.0
#include "vcpu/exit.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace vmm::vcpu {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

Exit decode_io(kvm_run& run, std::size_t mapping_bytes) noexcept {
  const auto& io = run.io;
  const std::size_t bytes = std::size_t{io.size} * io.count;
  if ((io.size != 1 && io.size != 2 && io.size != 4) || io.data_offset > mapping_bytes ||
      bytes > mapping_bytes - io.data_offset) {
    return MalformedExit{"port I/O data outside the kvm_run page"};
  }
  auto* page = reinterpret_cast<std::byte*>(&run);
  return IoExit{io.port, io.size, io.direction == KVM_EXIT_IO_OUT, {page + io.data_offset, bytes}};
}

Exit decode_mmio(kvm_run& run) noexcept {
  if (run.mmio.len == 0 || run.mmio.len > sizeof run.mmio.data)
    return MalformedExit{"MMIO of a length KVM never gives"};
  return MmioExit{
      run.mmio.phys_addr, run.mmio.is_write != 0, {reinterpret_cast<std::byte*>(run.mmio.data), run.mmio.len}};
}

const char* suberror_name(std::uint32_t suberror) {
  switch (suberror) {
    case KVM_INTERNAL_ERROR_EMULATION:
      return "emulation failure";
    case KVM_INTERNAL_ERROR_SIMUL_EX:
      return "simultaneous exceptions";
    case KVM_INTERNAL_ERROR_DELIVERY_EV:
      return "exit during event delivery";
    case KVM_INTERNAL_ERROR_UNEXPECTED_EXIT_REASON:
      return "unexpected exit reason";
    default:
      return "unknown suberror";
  }
}

Outcome serve(const IoExit& exit, const Buses& buses) {
  // A string instruction arrives as many elements: each is an access of its own to the device.
  for (std::size_t at = 0; at < exit.data.size(); at += exit.size) {
    const std::span<std::byte> element = exit.data.subspan(at, exit.size);
    if (exit.write) {
      buses.ports.write(exit.port, element);
    } else {
      buses.ports.read(exit.port, element);
    }
  }
  return Continue{};
}

Outcome serve(const MmioExit& exit, const Buses& buses) {
  if (exit.write) {
    buses.mmio.write(exit.address, exit.data);
  } else {
    buses.mmio.read(exit.address, exit.data);
  }
  return Continue{};
}

}  // namespace

Exit decode_exit(kvm_run& run, std::size_t mapping_bytes) noexcept {
  switch (run.exit_reason) {
    case KVM_EXIT_IO:
      return decode_io(run, mapping_bytes);
    case KVM_EXIT_MMIO:
      return decode_mmio(run);
    case KVM_EXIT_HLT:
      return HltExit{};
    case KVM_EXIT_SHUTDOWN:
      return ShutdownExit{};
    case KVM_EXIT_SYSTEM_EVENT:
      return SystemEventExit{run.system_event.type};
    case KVM_EXIT_FAIL_ENTRY:
      return FailEntryExit{run.fail_entry.hardware_entry_failure_reason};
    case KVM_EXIT_INTERNAL_ERROR: {
      constexpr std::uint32_t kDataLimit = 16;
      const std::uint32_t words = std::min(run.internal.ndata, kDataLimit);
      return InternalErrorExit{run.internal.suberror,
                               {reinterpret_cast<const std::uint64_t*>(run.internal.data), words}};
    }
    default:
      return UnhandledExit{run.exit_reason};
  }
}

Outcome dispatch(const Exit& exit, const Buses& buses) {
  return std::visit(
      Overloaded{
          [&](const IoExit& io) { return serve(io, buses); },
          [&](const MmioExit& mmio) { return serve(mmio, buses); },
          [](const HltExit&) -> Outcome { return Halted{}; },
          [](const ShutdownExit&) -> Outcome { return Crash{Crash::Kind::kTripleFault, "triple fault"}; },
          [](const SystemEventExit& event) -> Outcome {
            return Crash{Crash::Kind::kSystemEvent, fmt::format("KVM system event {}", event.type)};
          },
          [](const InternalErrorExit& error) -> Outcome {
            return Crash{Crash::Kind::kInternalError,
                         fmt::format("KVM internal error {} ({}), data [{:#x}]", error.suberror,
                                     suberror_name(error.suberror), fmt::join(error.data, ", "))};
          },
          [](const FailEntryExit& failure) -> Outcome {
            return Crash{Crash::Kind::kFailEntry,
                         fmt::format("KVM cannot enter the guest: hardware reason {:#x}", failure.hardware_reason)};
          },
          [](const UnhandledExit& unhandled) -> Outcome {
            return Crash{Crash::Kind::kUnhandledExit,
                         fmt::format("exit reason {}, which this VMM did not ask for", unhandled.reason)};
          },
          [](const MalformedExit& malformed) -> Outcome { return Crash{Crash::Kind::kUnhandledExit, malformed.what}; },
      },
      exit);
}

}  // namespace vmm::vcpu
