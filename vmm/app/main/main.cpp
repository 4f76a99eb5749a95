// SPDX-License-Identifier: Apache-2.0
// From here to a HLT counter: parse_command_line -> run_once -> GuestRun -> Machine (the recipe in machine/machine.cpp)
// -> run_vcpu; counters are read in Machine::snapshot_at_rest() at the marks that AgentSession receives.
#include <exception>
#include <fmt/format.h>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "app/compare.hpp"
#include "app/doctor.hpp"
#include "app/options.hpp"
#include "app/report.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "experiment/run.hpp"
#include "experiment/supervisor.hpp"

namespace {

struct Execute {
  int operator()(const vmm::app::RunCommand& command) const { return vmm::experiment::run_once(command.config); }
  int operator()(const vmm::app::CompareCommand& command) const { return vmm::app::compare(command); }
  int operator()(const vmm::app::CheckCommand& command) const { return vmm::app::check(command); }
  int operator()(const vmm::app::ReportCommand& command) const { return vmm::app::report(command); }
  int operator()(const vmm::app::DoctorCommand& command) const { return vmm::app::doctor(command); }
  int operator()(const vmm::app::ShowText& text) const {
    return vmm::base::write_all(STDOUT_FILENO, text.text) == 0 ? 0 : 3;
  }
};

// Tracepoint counters take some thirty descriptors a vCPU: more than the usual soft limit for 64 of them.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    raise_descriptor_limit();
    vmm::experiment::block_supervised_signals();
    return std::visit(Execute{}, vmm::app::parse_command_line(std::vector<std::string>(argv + 1, argv + argc)));
  } catch (const vmm::base::Error& error) {
    (void)vmm::base::write_all(STDERR_FILENO, fmt::format("vmm: {}\n", error.what()));
    return static_cast<int>(error.status());
  } catch (const std::exception& error) {
    (void)vmm::base::write_all(STDERR_FILENO, fmt::format("vmm: internal error: {}\n", error.what()));
    return static_cast<int>(vmm::base::ExitStatus::kHostUnable);
  }
}
