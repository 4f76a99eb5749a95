// SPDX-License-Identifier: Apache-2.0
// `perf bench sched pipe` in the line protocol: two processes, --loops (1000) round trips over two pipes.
// `seconds`: perf's own, by its microseconds an operation. The counted interval also holds the start of perf.

#include "external_program.hpp"

namespace {

constexpr const char* kProgram = "/usr/bin/perf";

}  // namespace

int main(int argc, char** argv) {
  return guest::run_workload("perf-sched-pipe", argc, argv, [](guest::Options& options) {
    const std::uint64_t loops = options.number("loops", 1000, 1, 10'000'000);
    options.finish();
    guest::expect_program(kProgram);
    guest::wait_for_go();
    const std::string output =
        guest::output_of({kProgram, "bench", "sched", "pipe", "--loop=" + std::to_string(loops)});
    // "28.670000 usecs/op" (tools/perf/bench/sched-pipe.c), that is picoseconds.
    constexpr std::size_t kDecimals = 6;
    const auto ps = guest::decimal_before(output, output.find("usecs/op"), kDecimals);
    if (!ps || *ps == 0) throw std::runtime_error("perf said no time: \"" + output.substr(0, 200) + "\"");
    constexpr std::uint64_t kPsPerNs = 1000;
    guest::report_done(guest::JsonWriter()
                           .field_billionths("seconds", *ps * loops / kPsPerNs)
                           .field("operations", loops)
                           .field_null("latency_us"));
  });
}
