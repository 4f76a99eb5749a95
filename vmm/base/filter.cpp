// SPDX-License-Identifier: Apache-2.0
#include "base/filter.hpp"

#include <cerrno>
#include <csignal>
#include <fmt/format.h>
#include <span>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/unique_fd.hpp"

extern char** environ;

namespace vmm::base {
namespace {

constexpr std::size_t kOutputLimitBytes = 64 << 20;

// A file in memory: whatever the child's pace, neither side can block the other.
UniqueFd memory_file(const char* name) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC));
  if (!fd) throw_errno("memfd_create");
  return fd;
}

}  // namespace

std::string run_filter(const std::vector<std::string>& arguments, std::string_view input, std::string_view package) {
  const UniqueFd in = memory_file("input");
  const UniqueFd out = memory_file("output");
  if (const int error = write_all(in.get(), input); error != 0) throw SystemError("write to memory", error);
  if (::lseek(in.get(), 0, SEEK_SET) != 0) throw_errno("lseek");

  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, in.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out.get(), STDOUT_FILENO);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv.front(), &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw HostUnable(fmt::format("'{}' cannot be started: {}; Debian's package '{}' has it", arguments.front(),
                                 errno_text(error), package));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) throw_errno("waitpid");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw HostUnable(fmt::format("'{}' failed (wait status {:#x})", arguments.front(), status));
  }
  const std::size_t bytes = file_size_bytes(out.get(), arguments.front());
  if (bytes > kOutputLimitBytes) throw HostUnable(fmt::format("'{}' wrote {} bytes", arguments.front(), bytes));
  std::string text(bytes, '\0');
  read_exact(out.get(), 0, std::as_writable_bytes(std::span(text)), arguments.front());
  return text;
}

}  // namespace vmm::base
