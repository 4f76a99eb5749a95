// SPDX-License-Identifier: Apache-2.0
//
// The agent's side of the protocol with the VMM: JSON lines out, commands back. docs/metrics.md says what the numbers
// of a mark are. After the reply to every line that is not a mark the agent asks for the next command.
//
// Lines: phase, hello, next, configured, mark, mark-ok, heartbeat, result, exec, error.
// Commands: configure, run, exec, wait, poweroff.
#pragma once

#include <string>
#include <vector>

#include "agent/files.hpp"
#include "agent/json.hpp"
#include "agent/link.hpp"

namespace guest {

class Session {
 public:
  Session(Link& link, const Files& files) : link_(link), files_(files) {}

  // {"type":"phase","name":…,"uptime_ms":…}: since the kernel's start (CLOCK_BOOTTIME), now.
  void phase(const char* name);
  void error(const std::string& code, const std::string& what);

  // Says hello and does what the VMM says, until it says power off. Whatever goes wrong with a command becomes an error
  // line, and the next command is asked for.
  void serve();

 private:
  std::string send(const Json& line);
  // False: power off.
  bool execute(const Json& command);
  void configure(const Json& command);
  void run(const Json& command);
  void exec(const Json& command);
  // Throws CommandError when 50 attempts brought no quiet moment.
  void mark(const Json& trial, const char* name);

  Link& link_;
  const Files& files_;
};

}  // namespace guest
