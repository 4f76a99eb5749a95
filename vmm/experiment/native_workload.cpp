// SPDX-License-Identifier: Apache-2.0
#include "experiment/native_workload.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/unique_fd.hpp"

extern char** environ;

namespace vmm::experiment {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kOutputLimitBytes = 1 << 20;

struct Pipe {
  base::UniqueFd read;
  base::UniqueFd write;
};

Pipe make_pipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) base::throw_errno("pipe2");
  return {base::UniqueFd(fds[0]), base::UniqueFd(fds[1])};
}

// A child in a process group of its own (a workload forks), killed and reaped when this goes out of scope.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) (void)kill_and_wait();
  }
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }
  int kill_and_wait() {
    ::kill(-pid_, SIGKILL);
    return wait();
  }

 private:
  pid_t pid_;
};

pid_t spawn(const std::filesystem::path& binary, const std::vector<std::string>& arguments, int in, int out) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);  // this process blocks the signals that its supervisor reads
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, binary.c_str(), &actions, &attributes, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw base::HostUnable(
        fmt::format("the workload '{}' cannot be started on this host: {}", binary.string(), base::errno_text(error)));
  }
  return pid;
}

// How often a wait looks whether it has been cancelled.
constexpr long kLookMs = 100;

// The next line of `fd`; no value at its end, at the deadline, or when cancelled.
std::optional<std::string> read_line(int fd, std::string& buffer, Clock::time_point deadline,
                                     const std::atomic<bool>* cancelled) {
  while (true) {
    if (const std::size_t end = buffer.find('\n'); end != std::string::npos) {
      std::string text = buffer.substr(0, end);
      buffer.erase(0, end + 1);
      return text;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (cancelled != nullptr && *cancelled) return std::nullopt;
    if (left <= 0 || buffer.size() > kOutputLimitBytes) return std::nullopt;
    pollfd wait{fd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::min<long>(left, kLookMs)));
    if (ready < 0 && errno != EINTR) return std::nullopt;
    if (ready <= 0) continue;
    char chunk[4096];
    const ssize_t got = ::read(fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    buffer.append(chunk, static_cast<std::size_t>(got));
  }
}

}  // namespace

std::filesystem::path native_workload_path(const std::string& workload) {
  return base::built_path("guest-bin") / workload;
}

struct NativeTask::State {
  State(Pipe to, Pipe from, const std::filesystem::path& binary, const std::vector<std::string>& arguments,
        const std::atomic<bool>* cancelled_by)
      : cancelled(cancelled_by),
        to_child(std::move(to)),
        from_child(std::move(from)),
        child(spawn(binary, arguments, to_child.read.get(), from_child.write.get())) {
    to_child.read.reset();
    from_child.write.reset();
  }

  std::optional<std::string> line(Clock::time_point deadline) {
    return read_line(from_child.read.get(), buffer, deadline, cancelled);
  }
  // Why no line came.
  std::string silence(Clock::time_point deadline) {
    const int status = child.kill_and_wait();
    return Clock::now() >= deadline ? "the workload did not end in time"
                                    : fmt::format("the workload ended without a result (wait status {:#x})", status);
  }

  const std::atomic<bool>* cancelled;
  Pipe to_child;
  Pipe from_child;
  Child child;
  std::string buffer;
};

NativeTask::NativeTask(const std::filesystem::path& binary, const std::map<std::string, std::string>& args,
                       std::chrono::milliseconds timeout, const std::atomic<bool>* cancelled) {
  const auto deadline = Clock::now() + timeout;
  std::vector<std::string> arguments{binary.string()};
  for (const auto& [key, value] : args) arguments.push_back(fmt::format("--{}={}", key, value));
  state_ = std::make_unique<State>(make_pipe(), make_pipe(), binary, arguments, cancelled);
  while (true) {
    const auto text = state_->line(deadline);
    if (!text) throw base::HostUnable(fmt::format("'{}': {}", binary.string(), state_->silence(deadline)));
    if (*text == "ready") break;
  }
  // A workload that has died meanwhile is found out by its pipe's end.
  (void)base::write_all(state_->to_child.write.get(), "go\n");
}

NativeTask::~NativeTask() = default;

NativeResult NativeTask::finish(std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  NativeResult result;
  const auto fail = [&](std::string problem) {
    result.status = 1;
    result.problem = std::move(problem);
    return result;
  };
  while (true) {
    const auto text = state_->line(deadline);
    if (!text) return fail(state_->silence(deadline));
    if (!text->starts_with("done ")) continue;
    result.result = nlohmann::json::parse(text->substr(5), nullptr, false);
    if (!result.result.is_object()) return fail("the workload's result is not a JSON object");
    break;
  }
  state_->to_child.write.reset();
  const int status = state_->child.wait();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return fail(fmt::format("the workload failed (wait status {:#x})", status));
  }
  return result;
}

NativeResult NativeTask::stop(std::chrono::milliseconds timeout) {
  state_->to_child.write.reset();
  return finish(timeout);
}

NativeResult run_native(const std::filesystem::path& binary, const std::map<std::string, std::string>& args,
                        std::chrono::milliseconds timeout, const std::atomic<bool>* cancelled) {
  return NativeTask(binary, args, timeout, cancelled).finish(timeout);
}

}  // namespace vmm::experiment
