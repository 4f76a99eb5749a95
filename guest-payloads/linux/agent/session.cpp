// SPDX-License-Identifier: Apache-2.0
#include "agent/session.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>
#include <time.h>
#include <unistd.h>

#include "agent/all_cpus_busy.hpp"
#include "agent/child.hpp"
#include "agent/guest_state.hpp"
#include "proc_interrupts.hpp"

namespace guest {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMarkAttempts = 50;
// So many leave the other CPUs alone; the rest keep them busy, which costs a wake-up of each and ends what balancing
// sends.
constexpr int kMarkAttemptsUndisturbed = 10;
constexpr auto kMarkQuiet = std::chrono::microseconds(200);
constexpr auto kReadyLimit = milliseconds(60'000);
constexpr auto kEndLimit = milliseconds(10'000);
// Only intervals longer than this have heartbeats, so that short ones are not disturbed at all.
constexpr auto kHeartbeat = milliseconds(5'000);
constexpr auto kHresLimit = milliseconds(2'000);
constexpr auto kExecLimit = milliseconds(600'000);
constexpr auto kPauseAfterNothing = milliseconds(10);
constexpr std::size_t kExecOutputBytes = 16384;

// A command that cannot be done: becomes an error line.
class CommandError : public std::runtime_error {
 public:
  CommandError(std::string code, const std::string& what) : std::runtime_error(what), code_(std::move(code)) {}
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

struct Knob {
  const char* key;  // of the command, and of the answer
  const char* path;
};
constexpr Knob kKnobs[] = {
    {"idle_spin_us", kIdleSpinKnob},
    {"record_gaps", "/sys/kernel/debug/idle_spin/record_gaps"},
    {"guest_halt_poll_ns", "/sys/module/haltpoll/parameters/guest_halt_poll_ns"},
    {"guest_halt_poll_shrink", "/sys/module/haltpoll/parameters/guest_halt_poll_shrink"},
    {"guest_halt_poll_grow", "/sys/module/haltpoll/parameters/guest_halt_poll_grow"},
    {"guest_halt_poll_grow_start", "/sys/module/haltpoll/parameters/guest_halt_poll_grow_start"},
    {"guest_halt_poll_allow_shrink", "/sys/module/haltpoll/parameters/guest_halt_poll_allow_shrink"},
    {"timer_softirq", "/sys/kernel/timer_softirq/mode"},
};

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return value.dump();
}

// A number where the kernel prints one, else its text.
Json value_of(const std::string& text) {
  const auto number = detail::to_number(text);
  return number ? Json(*number) : Json(text);
}

std::string name_in(const Json& command, const char* key) {
  const auto found = command.find(key);
  if (found == command.end() || !found->is_string()) {
    throw CommandError("bad-command", std::string("the command has no \"") + key + "\"");
  }
  return found->get<std::string>();
}

void busy_wait(std::chrono::microseconds span) {
  const auto end = Clock::now() + span;
  while (Clock::now() < end) __builtin_ia32_pause();
}

}  // namespace

std::string Session::send(const Json& line) {
  return link_.exchange(line.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void Session::phase(const char* name) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double ms = static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec / 1000) / 1e3;
  send({{"type", "phase"}, {"name", name}, {"uptime_ms", ms}});
}

void Session::error(const std::string& code, const std::string& what) {
  send({{"type", "error"}, {"code", code}, {"what", what}});
}

void Session::serve() {
  // The switch to high resolution comes with a tick of each CPU, some ticks after the clocksource: wait for it here,
  // before anybody asks.
  const auto limit = Clock::now() + kHresLimit;
  while (!read_timer_state(files_).hres_active && Clock::now() < limit) std::this_thread::sleep_for(milliseconds(10));

  Json hello = {{"type", "hello"}, {"agent", 1}};
  hello.update(describe_guest(files_));
  std::string reply = send(hello);
  while (true) {
    if (reply.empty()) std::this_thread::sleep_for(kPauseAfterNothing);
    if (!reply.empty()) {
      try {
        const Json command = Json::parse(reply);
        if (!execute(command)) return;
      } catch (const CommandError& failure) {
        error(failure.code(), failure.what());
      } catch (const Json::exception& failure) {
        error("bad-command", std::string(failure.what()) + " in: " + reply.substr(0, 200));
      } catch (const std::exception& failure) {
        error("agent", failure.what());
      }
    }
    reply = send({{"type", "next"}});
  }
}

bool Session::execute(const Json& command) {
  const std::string what = name_in(command, "cmd");
  if (what == "poweroff") return false;
  if (what == "wait") {
    std::this_thread::sleep_for(
        milliseconds(std::clamp<std::int64_t>(command.value("ms", std::int64_t{10}), 0, 60'000)));
  } else if (what == "configure") {
    configure(command);
  } else if (what == "run") {
    run(command);
  } else if (what == "exec") {
    exec(command);
  } else {
    throw CommandError("bad-command", "unknown command \"" + what + "\"");
  }
  return true;
}

void Session::configure(const Json& command) {
  Json answer = {{"type", "configured"}};
  for (const auto& [key, value] : command.items()) {
    if (key == "cmd") continue;
    const auto* knob =
        std::find_if(std::begin(kKnobs), std::end(kKnobs), [&key](const Knob& k) { return key == k.key; });
    if (knob == std::end(kKnobs)) throw CommandError("bad-command", "configure knows no \"" + key + "\"");
    const std::string place = key + " (" + knob->path + ")";
    if (!files_.exists(knob->path)) throw CommandError("no-knob", "this kernel has no " + place);
    const int failed = files_.write(knob->path, text_of(value));
    if (failed != 0) {
      throw CommandError(failed == EINVAL || failed == ERANGE ? "bad-value" : "io",
                         place + " = " + text_of(value) + ": " + std::strerror(failed));
    }
    const auto now = files_.read_line(knob->path);
    if (!now) throw CommandError("io", place + " cannot be read back");
    answer[key] = value_of(*now);
  }
  send(answer);
}

void Session::mark(const Json& trial, const char* name) {
  // Every line costs exits, a mark's own time is what IPIs must stay away from: the mark itself is short, the counters
  // follow once they are known to be those of its moment.
  std::optional<AllCpusBusy> all_cpus_busy;
  for (int attempt = 1; attempt <= kMarkAttempts; ++attempt) {
    if (attempt > kMarkAttemptsUndisturbed && !all_cpus_busy) all_cpus_busy.emplace();
    const auto before = read_ipi_counts(files_);
    const std::string reply = send({{"type", "mark"}, {"trial", trial}, {"name", name}, {"attempt", attempt}});
    busy_wait(kMarkQuiet);
    Json counters = read_counters(files_);
    const bool quiet = read_ipi_counts(files_) == before;
    const Json answer = Json::parse(reply, nullptr, false);
    const bool retry = answer.is_object() && answer.value("mark", std::string()) == "retry";
    if (quiet && !retry) {
      send({{"type", "mark-ok"}, {"trial", trial}, {"name", name}, {"guest", std::move(counters)}});
      return;
    }
  }
  throw CommandError("mark", std::string("no quiet moment for the mark \"") + name + "\" in " +
                                 std::to_string(kMarkAttempts) + " attempts: IPIs arrive all the time");
}

void Session::run(const Json& command) {
  const Json trial = command.value("trial", Json(0));
  const std::string workload = name_in(command, "workload");
  const bool plain = !workload.empty() && workload.find_first_not_of(
                                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                              "0123456789._-") == std::string::npos;
  const std::string path = "/bin/" + workload;
  if (!plain || workload.front() == '.' || !files_.executable(path)) {
    throw CommandError("no-workload", "this guest has no workload \"" + workload + "\"");
  }
  const TimerState timers = read_timer_state(files_);
  if (!timers.hres_active) {
    throw CommandError("no-hres", "high-resolution timers are not active (clock event device " + timers.clock_event +
                                      "): every sleep would last until a tick, nothing measured would be true");
  }
  std::vector<std::string> arguments = {files_.full(path)};
  const Json options = command.value("args", Json::object());
  for (const auto& [key, value] : options.items()) {
    arguments.push_back("--" + key + "=" + text_of(value));
  }

  Json result = {{"type", "result"}, {"trial", trial}, {"workload", workload}};
  const auto failed = [&](int status, const std::string& what) {
    result["status"] = status == 0 ? 1 : status;
    result["operations"] = nullptr;
    result["latency_us"] = nullptr;
    result["what"] = what;
    send(result);
  };

  Child child(arguments);
  std::string line;
  if (child.read_line(line, kReadyLimit) != Child::Read::kLine || line != "ready") {
    child.kill();
    failed(child.wait(kEndLimit).value_or(1), "the workload did not say \"ready\" but \"" + line.substr(0, 200) + "\"");
    return;
  }
  mark(trial, "begin");
  const auto start = Clock::now();
  child.write_line("go");  // a workload that has died is found out by its pipe's end
  Child::Read got{};
  while ((got = child.read_line(line, kHeartbeat)) == Child::Read::kTimeout || !line.starts_with("done")) {
    if (got == Child::Read::kEnd) break;
    if (got == Child::Read::kTimeout) send({{"type", "heartbeat"}});
  }
  const std::chrono::duration<double> elapsed = Clock::now() - start;
  mark(trial, "end");
  const auto status = child.wait(kEndLimit);
  if (got == Child::Read::kEnd || status.value_or(1) != 0) {
    result["seconds"] = elapsed.count();
    failed(status.value_or(1), !status                    ? "the workload did not end after its result"
                               : got == Child::Read::kEnd ? "the workload ended without a result"
                                                          : "the workload failed after its result");
    return;
  }
  const Json done = Json::parse(line.substr(4), nullptr, false);
  if (!done.is_object()) {
    result["seconds"] = elapsed.count();
    failed(1, "the workload's result is no JSON object: " + line.substr(0, 200));
    return;
  }
  result["status"] = 0;
  for (const auto& [key, value] : done.items()) {
    if (!result.contains(key)) result[key] = value;
  }
  send(result);
}

void Session::exec(const Json& command) {
  const auto words = command.find("argv");
  if (words == command.end() || !words->is_array() || words->empty()) {
    throw CommandError("bad-command", "exec needs \"argv\", a list of words");
  }
  std::vector<std::string> arguments;
  for (const Json& word : *words) arguments.push_back(text_of(word));
  const auto limit = milliseconds(command.value("timeout_ms", std::int64_t{kExecLimit.count()}));
  const auto end = Clock::now() + limit;
  Child child(arguments);
  child.close_stdin();
  std::string output;
  bool timed_out = false;
  while (true) {
    if (Clock::now() >= end) {
      timed_out = true;
      break;
    }
    std::string line;
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    const Child::Read got = child.read_line(line, std::min(left, kHeartbeat));
    if (got == Child::Read::kTimeout) {
      send({{"type", "heartbeat"}});
      continue;
    }
    if (output.size() < kExecOutputBytes) output += got == Child::Read::kLine ? line + "\n" : line;
    if (got == Child::Read::kEnd) break;
  }
  if (timed_out) child.kill();
  const auto status = child.wait(kEndLimit);
  const bool cut = output.size() > kExecOutputBytes;
  output.resize(std::min(output.size(), kExecOutputBytes));
  send({{"type", "exec"},
        {"argv", *words},
        {"status", timed_out || !status ? Json(nullptr) : Json(*status)},
        {"timed_out", timed_out},
        {"output", output},
        {"output_cut", cut}});
}

}  // namespace guest
