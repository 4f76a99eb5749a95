// SPDX-License-Identifier: Apache-2.0
// The guest's side of the agent channel, byte by byte through the device into a session: whatever it says, nothing but
// a reply or a recorded violation comes of it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "devices/agent_channel.hpp"
#include "experiment/agent_session.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using vmm::experiment::AgentSession;
  if (size == 0) return 0;
  const auto speaker = (data[0] & 1) != 0 ? AgentSession::Speaker::kAgent : AgentSession::Speaker::kPayload;
  AgentSession session(speaker, [] {
    vmm::stats::VcpuSnapshot snapshot;
    snapshot.counters["hlt_exits"] = vmm::stats::Value::count(1, vmm::stats::Source::kKvmStats);
    return std::vector{snapshot};
  });
  vmm::devices::AgentChannel channel(
      [&session](std::string_view line, bool complete) { return session.on_line(line, complete); });
  for (std::size_t i = 1; i < size; ++i) {
    const auto byte = static_cast<std::byte>(data[i]);
    channel.write(0, std::span(&byte, 1));
  }
  (void)session.trial_unfinished();
  return 0;
}
