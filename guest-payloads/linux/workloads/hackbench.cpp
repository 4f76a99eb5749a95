// SPDX-License-Identifier: Apache-2.0
// rt-tests' hackbench in the line protocol: --groups (1) of --fds (4) senders and as many receivers, each sender
// --loops (100) messages to each receiver of its group, by sockets or --pipe=1. `seconds`: hackbench's own time, to the
// millisecond. `operations`: messages. The counted interval also holds the start and the end of its processes.

#include "external_program.hpp"

namespace {

constexpr const char* kProgram = "/usr/bin/hackbench";

// The milliseconds in the last line, "Time: 0.123" (hackbench.c, main()).
std::optional<std::uint64_t> time_ms(std::string_view output) {
  constexpr std::size_t kDecimals = 3;
  const std::size_t label = output.find("Time: ");
  if (label == output.npos) return std::nullopt;
  return guest::decimal_before(output, output.find('\n', label), kDecimals);
}

}  // namespace

int main(int argc, char** argv) {
  return guest::run_workload("hackbench", argc, argv, [](guest::Options& options) {
    const std::uint64_t groups = options.number("groups", 1, 1, 100);
    const std::uint64_t fds = options.number("fds", 4, 1, 100);
    const std::uint64_t loops = options.number("loops", 100, 1, 10'000'000);
    const bool by_pipe = options.number("pipe", 0, 0, 1) == 1;
    options.finish();
    guest::expect_program(kProgram);
    // Short options: its --loops=N takes the next argument (rt-tests 2.4).
    std::vector<std::string> arguments{
        kProgram, "-g", std::to_string(groups), "-f", std::to_string(fds), "-l", std::to_string(loops)};
    if (by_pipe) arguments.emplace_back("-p");
    guest::wait_for_go();
    const std::string output = guest::output_of(std::move(arguments));
    const auto ms = time_ms(output);
    if (output.find("will pass " + std::to_string(loops) + " messages") == output.npos) {
      throw std::runtime_error("hackbench did something else: \"" + output.substr(0, 200) + "\"");
    }
    if (!ms) throw std::runtime_error("hackbench said no time: \"" + output.substr(0, 200) + "\"");
    if (*ms == 0) throw std::runtime_error("hackbench took no millisecond: more --loops can be measured");
    guest::report_done(guest::JsonWriter()
                           .field_billionths("seconds", *ms * 1'000'000)
                           .field("operations", groups * fds * fds * loops)
                           .field_null("latency_us"));
  });
}
