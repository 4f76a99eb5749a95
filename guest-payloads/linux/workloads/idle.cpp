// SPDX-License-Identifier: Apache-2.0
// Nothing at all, for --seconds (3): the control. What is counted meanwhile is the kernel's own.

#include "workload.hpp"

int main(int argc, char** argv) {
  return guest::run_workload("idle", argc, argv, [](guest::Options& options) {
    const std::uint64_t seconds = options.number("seconds", 3, 0, 86400);
    options.finish();
    guest::wait_for_go();
    const std::uint64_t start = guest::monotonic_ns();
    guest::sleep_ns(seconds * 1'000'000'000);
    const std::uint64_t ns = guest::monotonic_ns() - start;
    guest::report_done(guest::JsonWriter()
                           .field_billionths("seconds", ns)
                           .field("operations", std::uint64_t{0})
                           .field_null("latency_us"));
  });
}
