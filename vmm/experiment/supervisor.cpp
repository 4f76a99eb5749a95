// SPDX-License-Identifier: Apache-2.0
#include "experiment/supervisor.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "base/error.hpp"

namespace vmm::experiment {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::array kSupervised = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
// How often the watchdog looks, and how long input waits that the guest's UART had no room for.
constexpr milliseconds kWatchdogGrain{200};
constexpr milliseconds kInputRetry{5};
constexpr std::size_t kInputLimit = 4096;

sigset_t supervised_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSupervised) sigaddset(&set, signal);
  return set;
}

}  // namespace

void block_supervised_signals() {
  const sigset_t set = supervised_set();
  if (::pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0) base::throw_errno("pthread_sigmask");
  ::signal(SIGPIPE, SIG_IGN);
}

void unblock_supervised_signals() {
  const sigset_t set = supervised_set();
  (void)::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

Supervisor::Supervisor(const Config& config, Callbacks callbacks) : config_(config), callbacks_(std::move(callbacks)) {
  const sigset_t set = supervised_set();
  signals_ = base::UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) base::throw_errno("signalfd");
  quit_ = base::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!quit_) base::throw_errno("eventfd");
  thread_ = std::thread([this] { loop(); });
}

Supervisor::~Supervisor() {
  const std::uint64_t one = 1;
  (void)!::write(quit_.get(), &one, sizeof one);
  thread_.join();
}

void Supervisor::loop() {
  ::pthread_setname_np(::pthread_self(), "supervisor");
  const auto start = Clock::now();
  auto next_period = start + milliseconds(config_.period_ms);
  auto last_life = start;
  std::uint64_t life = 0;
  bool timed_out = false;
  bool wedged = false;
  bool stdin_open = config_.read_stdin;
  std::string input;

  while (true) {
    const auto now = Clock::now();
    auto wake = now + std::chrono::hours(1);
    if (config_.timeout_ms != 0 && !timed_out) {
      const auto deadline = start + milliseconds(config_.timeout_ms);
      if (now >= deadline) {
        timed_out = true;
        callbacks_.on_timeout();
      } else {
        wake = std::min(wake, deadline);
      }
    }
    if (config_.watchdog_ms != 0 && !wedged) {
      if (const std::uint64_t seen = callbacks_.signs_of_life(); seen != life) {
        life = seen;
        last_life = now;
      }
      if (now >= last_life + milliseconds(config_.watchdog_ms)) {
        wedged = true;
        callbacks_.on_wedged();
      }
      wake = std::min(wake, now + kWatchdogGrain);
    }
    if (config_.period_ms != 0) {
      if (now >= next_period) {
        callbacks_.on_period();
        while (next_period <= now) next_period += milliseconds(config_.period_ms);
      }
      wake = std::min(wake, next_period);
    }
    if (!input.empty()) {
      input.erase(0, callbacks_.on_input(input));
      if (!input.empty()) wake = std::min(wake, now + kInputRetry);
    }

    std::array<pollfd, 3> polls{{{quit_.get(), POLLIN, 0},
                                 {config_.read_signals ? signals_.get() : -1, POLLIN, 0},
                                 {stdin_open && input.size() < kInputLimit ? STDIN_FILENO : -1, POLLIN, 0}}};
    const auto wait = std::chrono::ceil<milliseconds>(wake - Clock::now()).count();
    if (::poll(polls.data(), polls.size(), static_cast<int>(std::clamp<long>(wait, 0, 3'600'000))) < 0 &&
        errno != EINTR) {
      return;
    }
    if (polls[0].revents != 0) return;
    if (polls[1].revents != 0) {
      signalfd_siginfo info{};
      while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGUSR1) {
          callbacks_.on_dump_signal();
        } else {
          callbacks_.on_end_signal(static_cast<int>(info.ssi_signo));
        }
      }
    }
    if (polls[2].revents != 0) {
      char chunk[256];
      const ssize_t got = ::read(STDIN_FILENO, chunk, sizeof chunk);
      if (got > 0) {
        input.append(chunk, static_cast<std::size_t>(got));
      } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
        stdin_open = false;
      }
    }
  }
}

struct RawTerminal::Saved {
  termios settings;
};

RawTerminal::RawTerminal() {
  termios settings{};
  if (::isatty(STDIN_FILENO) != 1 || ::tcgetattr(STDIN_FILENO, &settings) != 0) return;
  saved_ = std::make_unique<Saved>(Saved{settings});
  ::cfmakeraw(&settings);
  settings.c_oflag |= OPOST;  // our own lines on the same terminal keep their carriage returns
  ::tcsetattr(STDIN_FILENO, TCSANOW, &settings);
}

RawTerminal::~RawTerminal() {
  if (saved_) ::tcsetattr(STDIN_FILENO, TCSANOW, &saved_->settings);
}

}  // namespace vmm::experiment
