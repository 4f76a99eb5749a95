// SPDX-License-Identifier: Apache-2.0
//
// PID 1 of the laboratory's guest: sets up what a workload needs, connects to the VMM, does what it says, powers off.
// Without a VMM at the other end it says so on the console, runs the program that the kernel's command line names
// (agent.exec=/bin/idle,--seconds=1: words separated by commas; "go" is on its stdin), and powers off.

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <net/if.h>
#include <signal.h>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "agent/child.hpp"
#include "agent/files.hpp"
#include "agent/link.hpp"
#include "agent/session.hpp"

namespace {

void say(const std::string& text) {
  const std::string line = "agent: " + text + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // no console: nobody to tell
}

// Failures of the set-up, collected: none of them is a reason to give up, all of them are told.
std::vector<std::string> set_up() {
  std::vector<std::string> problems;
  const auto check = [&problems](int result, const std::string& what) {
    if (result != 0) problems.push_back(what + ": " + std::strerror(errno));
  };
  const auto mount_at = [&check](const char* type, const char* where, bool may_exist) {
    mkdir(where, 0755);
    const int result = mount(type, where, type, MS_NOSUID | MS_NOEXEC, nullptr);
    // The kernel mounts devtmpfs itself (CONFIG_DEVTMPFS_MOUNT) only for a disk; EBUSY is fine where it did.
    check(result != 0 && may_exist && errno == EBUSY ? 0 : result, std::string("mounting ") + where);
  };
  mount_at("devtmpfs", "/dev", true);
  mount_at("proc", "/proc", false);
  mount_at("sysfs", "/sys", false);
  mount_at("tmpfs", "/tmp", false);
  // A stock kernel may come without it: then there are no spin statistics, which is said in each mark (null).
  if (access("/sys/kernel/debug", F_OK) == 0) mount_at("debugfs", "/sys/kernel/debug", true);

  const auto limit = [&check](__rlimit_resource_t resource, rlim_t value, const char* name) {
    const rlimit both{value, value};
    check(setrlimit(resource, &both), std::string("limit ") + name);
  };
  limit(RLIMIT_NOFILE, 65536, "NOFILE");
  limit(RLIMIT_MEMLOCK, RLIM_INFINITY, "MEMLOCK");
  limit(RLIMIT_RTPRIO, 99, "RTPRIO");
  limit(RLIMIT_CORE, 0, "CORE");

  const int control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (control < 0) {
    check(-1, "a socket to bring up lo");
  } else {
    ifreq request{};
    std::strncpy(request.ifr_name, "lo", sizeof(request.ifr_name) - 1);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    check(ioctl(control, SIOCSIFFLAGS, &request), "bringing up lo");
    close(control);
  }
  setenv("PATH", "/bin:/sbin:/usr/bin:/usr/sbin", 1);
  setenv("HOME", "/tmp", 1);
  signal(SIGPIPE, SIG_IGN);
  return problems;
}

[[noreturn]] void power_off() {
  sync();
  reboot(RB_POWER_OFF);
  say(std::string("power off: ") + std::strerror(errno));
  reboot(RB_AUTOBOOT);  // with a VMM that takes a reset for the end
  while (true) pause();
}

// The words of agent.exec=…, or none.
std::vector<std::string> program_on_command_line(const guest::Files& files) {
  const std::string line = files.read_line("/proc/cmdline").value_or("");
  constexpr std::string_view kKey = "agent.exec=";
  const std::size_t found = (" " + line).find(" " + std::string(kKey));
  if (found == std::string::npos) return {};
  const std::size_t start = found + kKey.size();
  const std::string value = line.substr(start, line.find(' ', start) - start);
  std::vector<std::string> words(1);
  for (const char c : value) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

void run_alone(const guest::Files& files) {
  const std::vector<std::string> words = program_on_command_line(files);
  if (words.empty()) return;
  guest::Child child(words);
  child.write_line("go");
  child.close_stdin();
  std::string line;
  while (true) {
    const auto got = child.read_line(line, std::chrono::hours(1));
    if (got == guest::Child::Read::kTimeout) continue;
    if (!line.empty()) say(line);
    if (got == guest::Child::Read::kEnd) break;
  }
  const auto status = child.wait(std::chrono::seconds(10));
  say(words.front() + " ended with status " + (status ? std::to_string(*status) : "unknown"));
}

}  // namespace

int main() {
  if (getpid() != 1) {
    say("runs as PID 1 of the laboratory's guest only");
    return 2;
  }
  const std::vector<std::string> problems = set_up();
  for (const std::string& problem : problems) say(problem);
  const guest::Files files;
  try {
    std::string why;
    auto link = guest::PortLink::open(why);
    if (!link) {
      say("no connection to a VMM: " + why);
      run_alone(files);
      power_off();
    }
    guest::Session session(*link, files);
    session.phase("init");
    for (const std::string& problem : problems) session.error("setup", problem);
    session.serve();
  } catch (const std::exception& error) {
    say(error.what());
  }
  power_off();
}
