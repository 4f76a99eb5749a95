// SPDX-License-Identifier: Apache-2.0
// What workloads of several processes share: descriptors, latencies, a way to wait for each other.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <sched.h>
#include <span>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "workload.hpp"

namespace guest {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// Memory that forked processes share, zero at first.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes) {
    // MAP_POPULATE: no page fault while measuring.
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory_ == MAP_FAILED) throw_errno("shared memory of " + std::to_string(bytes) + " bytes");
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { munmap(memory_, bytes_); }
  void* get() const { return memory_; }

 private:
  std::size_t bytes_;
  void* memory_;
};

// Written by one process, read by another when that one has ended.
class SharedLatencies {
 public:
  explicit SharedLatencies(std::uint64_t count)
      : memory_((count + 1) * sizeof(std::uint64_t)), words_(static_cast<std::uint64_t*>(memory_.get()), count + 1) {}

  void add(std::uint64_t ns) {
    if (words_[0] + 1 < words_.size()) words_[++words_[0]] = ns;
  }
  std::vector<std::uint64_t> values() const {
    const auto used = words_.subspan(1, words_[0]);
    return {used.begin(), used.end()};
  }

 private:
  SharedMemory memory_;
  std::span<std::uint64_t> words_;  // the first one counts the others
};

inline void pin_to(const std::vector<unsigned>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const unsigned cpu : cpus) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) throw_errno("pinning to CPU " + std::to_string(cpus.front()));
}

// Forks; `body` is the child's life, which ends with the parent's. Its exceptions are a line on stderr and status 1.
template <class Body>
pid_t start_process(const char* name, Body body) {
  const pid_t child = fork();
  if (child < 0) throw_errno("fork");
  if (child > 0) return child;
  int status = 1;
  try {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    status = 0;
  } catch (const std::exception& error) {
    const std::string line = std::string(name) + ": " + error.what() + "\n";
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) status = 2;  // nobody to tell
  }
  _exit(status);
}

// Waits for a child. Throws when it failed.
inline void expect_success(pid_t child, const std::string& what) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw_errno("waitpid");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw std::runtime_error(what + " failed");
}

}  // namespace guest
