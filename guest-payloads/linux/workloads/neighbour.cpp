// SPDX-License-Identifier: Apache-2.0
// The other tenant of the host's CPUs: a busy process on each of --cpus (0), until its standard input ends. What it
// gets done shows what a guest's polling costs others. `operations`: units of work of all processes together.

#include <atomic>
#include <csignal>
#include <poll.h>
#include <sched.h>
#include <span>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "workload.hpp"

namespace {

using guest::throw_errno;

// One unit is some microseconds of dependent arithmetic: nothing that depends on memory or on the other CPU.
constexpr int kStepsPerUnit = 4096;

struct alignas(64) Tally {
  std::atomic<std::uint64_t> units;
};

void unit_of_work(std::uint64_t& state) {
  for (int step = 0; step < kStepsPerUnit; ++step) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    asm volatile("" : "+r"(state));
  }
}

[[noreturn]] void work_on(unsigned cpu, Tally& tally, const std::atomic<bool>& go) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) _exit(1);
  std::uint64_t state = 0x9e3779b97f4a7c15 + cpu;
  while (!go.load(std::memory_order_relaxed)) sched_yield();
  while (true) {
    unit_of_work(state);
    tally.units.fetch_add(1, std::memory_order_relaxed);
  }
}

void wait_for_end_of_input() {
  char rest[64];
  while (true) {
    const ssize_t got = read(STDIN_FILENO, rest, sizeof(rest));
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

struct Shared {
  std::atomic<bool> go;
  Tally tallies[64];
};

}  // namespace

int main(int argc, char** argv) {
  return guest::run_workload("neighbour", argc, argv, [](guest::Options& options) {
    std::vector<unsigned> cpus = options.cpus("cpus");
    options.finish();
    if (cpus.empty()) cpus.push_back(0);
    if (cpus.size() > std::size(Shared{}.tallies)) throw guest::OptionError("--cpus: more than 64");

    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw_errno("shared memory");
    auto& shared = *static_cast<Shared*>(memory);
    std::vector<pid_t> children;
    for (std::size_t i = 0; i < cpus.size(); ++i) {
      const pid_t child = fork();
      if (child < 0) throw_errno("fork");
      if (child == 0) work_on(cpus[i], shared.tallies[i], shared.go);
      children.push_back(child);
    }
    guest::wait_for_go();
    const std::uint64_t start = guest::monotonic_ns();
    shared.go.store(true);
    wait_for_end_of_input();
    const std::uint64_t ns = guest::monotonic_ns() - start;
    std::uint64_t units = 0;
    for (std::size_t i = 0; i < cpus.size(); ++i) units += shared.tallies[i].units.load();
    bool failed = false;
    for (const pid_t child : children) {
      kill(child, SIGKILL);
      int status = 0;
      while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
      }
      failed = failed || WIFEXITED(status);  // killed is how it is to end
    }
    if (failed) throw std::runtime_error("a CPU of --cpus cannot be used");
    guest::report_done(
        guest::JsonWriter().field_billionths("seconds", ns).field("operations", units).field_null("latency_us"));
  });
}
