// SPDX-License-Identifier: Apache-2.0
#include "agent/child.hpp"

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <system_error>
#include <time.h>
#include <unistd.h>
#include <utility>

namespace guest {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kLineBytesMaximum = 1 << 20;

int as_shell(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int milliseconds_left(Clock::time_point end) {
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left);
}

[[noreturn]] void throw_errno(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

void close_and_forget(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

Child::Child(const std::vector<std::string>& arguments) {
  int in[2] = {-1, -1};
  int out[2] = {-1, -1};
  int failed[2] = {-1, -1};  // closed by a successful exec, else brings its errno
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(failed, O_CLOEXEC) != 0) {
    const int error = errno;
    for (const int fd : {in[0], in[1], out[0], out[1]}) {
      if (fd >= 0) close(fd);
    }
    throw_errno(error, "pipe");
  }
  std::vector<char*> words;
  words.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);

  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execv(words[0], words.data());
    const int error = errno;
    const ssize_t told = write(failed[1], &error, sizeof(error));
    _exit(told == sizeof(error) ? 127 : 126);
  }
  const int fork_error = errno;
  close(in[0]);
  close(out[1]);
  close(failed[1]);
  stdin_ = in[1];
  stdout_ = out[0];
  int exec_error = 0;
  ssize_t got = 0;
  if (pid_ > 0) {
    do {
      got = read(failed[0], &exec_error, sizeof(exec_error));
    } while (got < 0 && errno == EINTR);
  }
  close(failed[0]);
  if (pid_ < 0 || got == sizeof(exec_error)) {
    close_and_forget(stdin_);
    close_and_forget(stdout_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    throw_errno(pid_ < 0 ? fork_error : exec_error, pid_ < 0 ? "fork" : arguments.front());
  }
}

Child::~Child() {
  kill();  // before its stdin ends: that must not look like a word to it
  close_and_forget(stdin_);
  close_and_forget(stdout_);
  wait(milliseconds(5000));
}

void Child::kill() {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
}

Child::Read Child::read_line(std::string& line, milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (true) {
    const std::size_t newline = pending_.find('\n');
    if (newline != std::string::npos) {
      line = pending_.substr(0, newline);
      pending_.erase(0, newline + 1);
      return Read::kLine;
    }
    pollfd waiting{stdout_, POLLIN, 0};
    const int ready = poll(&waiting, 1, milliseconds_left(end));
    if (ready < 0 && errno != EINTR) throw_errno(errno, "poll");
    if (ready == 0) return Read::kTimeout;
    if (ready < 0) continue;
    char buffer[4096];
    const ssize_t got = read(stdout_, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || pending_.size() > kLineBytesMaximum) {
      line = std::exchange(pending_, {});
      return Read::kEnd;
    }
    pending_.append(buffer, static_cast<std::size_t>(got));
  }
}

bool Child::write_line(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = write(stdin_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return true;
}

void Child::close_stdin() {
  close_and_forget(stdin_);
}

std::optional<int> Child::wait(milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (!status_) {
    int status = 0;
    // Only PID 1 gets orphans; elsewhere (a test) other children are not ours to reap.
    const pid_t who = waitpid(getpid() == 1 ? -1 : pid_, &status, WNOHANG);
    if (who == pid_) {
      status_ = as_shell(status);
    } else if (who < 0 && errno == ECHILD) {
      status_ = 255;  // somebody else has taken the status: never to be called success
    } else if (who <= 0) {
      if (Clock::now() >= end) break;
      timespec nap{0, 1'000'000};
      nanosleep(&nap, nullptr);
    }
  }
  return status_;
}

}  // namespace guest
