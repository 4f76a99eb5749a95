// SPDX-License-Identifier: Apache-2.0
// For tests: runs --good (2) times on one machine, then never ends, whatever lives around it.

#include <fcntl.h>
#include <sys/stat.h>

#include "processes.hpp"

int main(int argc, char** argv) {
  return guest::run_workload("stuck", argc, argv, [](guest::Options& options) {
    const std::uint64_t good = options.number("good", 2, 0, 100);
    options.finish();
    guest::wait_for_go();
    const std::uint64_t start = guest::monotonic_ns();
    // The file's length is how often this has run.
    const guest::Fd runs(open("/tmp/stuck-runs", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (runs.get() < 0) guest::throw_errno("/tmp/stuck-runs");
    guest::write_all(runs.get(), ".");
    struct stat status{};
    if (fstat(runs.get(), &status) != 0) guest::throw_errno("fstat");
    while (static_cast<std::uint64_t>(status.st_size) > good) guest::sleep_ns(1'000'000'000);
    guest::sleep_ns(200'000'000);
    guest::report_done(guest::JsonWriter()
                           .field_billionths("seconds", guest::monotonic_ns() - start)
                           .field("operations", std::uint64_t{1})
                           .field_null("latency_us"));
  });
}
