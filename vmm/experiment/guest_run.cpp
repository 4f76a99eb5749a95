// SPDX-License-Identifier: Apache-2.0
#include "experiment/guest_run.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/file.hpp"
#include "boot/plan.hpp"
#include "experiment/workload_file.hpp"

namespace vmm::experiment {
namespace {

// What the built guest is told by default. quiet: console bytes are exits; panic=-1: a panic resets at once, which ends
// the run; the kernel needs no probing for what is known not to be there.
constexpr std::string_view kBuiltGuestCmdline =
    "console=ttyS0 quiet panic=-1 reboot=acpi,force tsc=reliable no_timer_check mitigations=off";
constexpr std::string_view kDefaultCmdline = "console=ttyS0 panic=-1";
constexpr std::chrono::milliseconds kDumpPatience{500};
constexpr char kConsoleEscape = 0x01;  // Ctrl-A, then x, ends an interactive run

base::UniqueFd open_built(const char* option, const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    throw base::HostUnable(
        fmt::format("{}: not given, and '{}' has not been built; ./run builds it", option, path.string()));
  }
  return base::open_input(option, path);
}

machine::Console make_console(const ConsoleConfig& config, int file) {
  using Style = machine::Console::Style;
  switch (config.kind) {
    case ConsoleConfig::Kind::kOff:
      return {Style::kOff, -1};
    case ConsoleConfig::Kind::kStdio:
      return {Style::kInteractive, STDERR_FILENO};
    case ConsoleConfig::Kind::kFile:
      return {Style::kVerbatim, file};
    case ConsoleConfig::Kind::kStderr:
      break;
  }
  return {::isatty(STDERR_FILENO) == 1 ? Style::kSafe : Style::kVerbatim, STDERR_FILENO};
}

std::optional<base::StreamFile> open_console_file(const ConsoleConfig& config) {
  if (config.kind != ConsoleConfig::Kind::kFile) return std::nullopt;
  return std::optional<base::StreamFile>(std::in_place, "--console", config.file);
}

std::string join_words(const std::map<std::string, std::string>& parameters) {
  std::string text;
  for (const auto& [key, value] : parameters) text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  return text;
}

std::string guest_cmdline(const GuestConfig& guest) {
  // A kernel of the user's gets the user's words instead of the default ones, the built one beside them.
  const bool replaced = !guest.kernel.empty() && !guest.cmdline.empty();
  std::string text(replaced               ? std::string_view(guest.cmdline)
                   : guest.kernel.empty() ? kBuiltGuestCmdline
                                          : kDefaultCmdline);
  if (guest.guest_idle) {
    switch (*guest.guest_idle) {
      case GuestIdle::kHalt:
        text += " idle=halt";
        break;
      case GuestIdle::kHaltpoll:
        text += " cpuidle_haltpoll.force=1";
        break;
      case GuestIdle::kPoll:
        text += " idle=poll";
        break;
      case GuestIdle::kMwait:
        break;  // by CPUID
    }
  }
  if (!replaced && !guest.cmdline.empty()) text += " " + guest.cmdline;
  return text;
}

machine::MachineConfig machine_config(const GuestRunConfig& config) {
  machine::MachineConfig result;
  const GuestConfig& guest = config.guest;
  result.cpus = guest.cpus;
  result.memory_bytes = guest.memory_bytes;
  result.pin = guest.pin;
  result.host_halt_poll_ns = guest.host_halt_poll_ns;
  result.disable_exits = guest.disable_exits;
  result.exit_times = config.exit_times;
  result.light_tracing = config.light_tracing;
  result.mwait = guest.guest_idle == GuestIdle::kMwait;
  return result;
}

}  // namespace

double ms_since_exec() {
  // Field 22 is in clock ticks since boot; CLOCK_BOOTTIME is the same clock.
  const std::string stat = base::read_text("/proc/self/stat");
  std::size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return 0;
  std::uint64_t ticks = 0;
  std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), ticks);
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const double now_ms = static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
  return std::max(0.0, now_ms - static_cast<double>(ticks) * 1e3 / static_cast<double>(::sysconf(_SC_CLK_TCK)));
}

GuestRun::GuestRun(const GuestRunConfig& config, std::function<void(GuestRun&)> on_period)
    : config_(config),
      has_agent_(!config.guest.payload && config.guest.initrd.empty()),
      console_file_(open_console_file(config.console)),
      console_(make_console(config.console, console_file_ ? console_file_->fd() : -1)),
      session_(config.guest.payload ? AgentSession::Speaker::kPayload : AgentSession::Speaker::kAgent,
               [this] { return machine_->snapshot_at_rest(); }),
      on_period_(std::move(on_period)) {
  const GuestConfig& guest = config_.guest;
  const std::string flavour = std::string("guest/") + name_of(guest.flavour);

  base::UniqueFd kernel;
  base::UniqueFd initrd;
  std::string kernel_name;
  if (guest.payload) {
    const bool is_file = guest.payload->name.find('/') != std::string::npos;
    const std::filesystem::path path =
        is_file ? std::filesystem::path(guest.payload->name) : base::built_path("payloads/" + guest.payload->name);
    if (!is_file && !std::filesystem::exists(path)) {
      throw base::BadInput(fmt::format("--payload: there is no payload '{}' in '{}'; a file's path needs a '/'",
                                       guest.payload->name, path.parent_path().string()));
    }
    kernel = base::open_input("--payload", path);
    kernel_name = path.string();
  } else {
    kernel = guest.kernel.empty() ? open_built("--kernel", base::built_path(flavour + "/bzImage"))
                                  : base::open_input("--kernel", guest.kernel);
    kernel_name = guest.kernel.empty() ? base::built_path(flavour + "/bzImage").string() : guest.kernel.string();
    if (!guest.initrd.empty()) {
      initrd = base::open_input("--initrd", guest.initrd);
    } else {
      initrd = open_built("--initrd", base::built_path("guest/initrd"));
      if (!guest.workload_file.empty()) {
        initrd = initrd_with_workload(initrd.get(), guest.workload_file);
      } else if (auto more = initrd_for_built_workload(initrd.get(), config_.workload)) {
        initrd = std::move(*more);
      }
    }
  }

  machine_ = std::make_unique<machine::Machine>(
      system_, machine_config(config_), console_, [this](std::string_view line, bool complete) {
        std::string reply = session_.on_line(line, complete);
        if (auto violation = session_.violation()) {
          machine_->request_stop({machine::Stop::Kind::kMisbehaved, *violation, 0});
        }
        return reply;
      });
  note_phase("kvm_ready");

  const boot::ByteSource source = boot::ByteSource::of_file(kernel.get(), guest.payload ? "--payload" : "--kernel");
  const boot::KernelImage image = boot::inspect_kernel(source, kernel_name);
  boot::BootPlan plan;
  if (guest.payload) {
    std::map<std::string, std::string> args = guest.payload->parameters;
    if (guest.guest_spin_us) args.emplace("spin_us", std::to_string(*guest.guest_spin_us));
    plan = boot::plan_payload(image, join_words(args), machine_->memory().regions(), guest.cpus,
                              machine_->tsc_khz().value_or(0));
  } else {
    plan = boot::plan_linux_boot(image, base::file_size_bytes(initrd.get(), "--initrd"), guest_cmdline(guest),
                                 machine_->memory().regions(), guest.cpus);
  }
  machine_->load(plan, kernel.get(), initrd.get());
  note_phase("loaded");

  machine_->on_stop([this] {
    session_.close();
    const std::lock_guard lock(mutex_);
    has_stopped_ = true;
    stopped_.notify_all();
  });
  if (config_.console.kind == ConsoleConfig::Kind::kStdio) raw_terminal_ = std::make_unique<RawTerminal>();
}

GuestRun::~GuestRun() {
  supervisor_.reset();
  machine_.reset();
}

void GuestRun::note_phase(const std::string& name) {
  phases_.emplace_back(name, ms_since_exec());
}

void GuestRun::give_up(machine::Stop::Kind kind, const std::string& what) {
  // The state must be taken while the vCPUs are still where they hang.
  std::string state = machine_->describe_vcpus();
  {
    const std::lock_guard lock(mutex_);
    diagnosis_ = std::move(state);
  }
  machine_->request_stop({kind, what, 0});
}

void GuestRun::start() {
  Supervisor::Config config;
  config.timeout_ms = config_.timeout_ms;
  // Payloads have no heartbeat: they are ended by --timeout.
  config.watchdog_ms = config_.guest.payload ? 0 : config_.watchdog_ms;
  config.period_ms = config_.period_ms;
  config.read_signals = config_.own_signals;
  config.read_stdin = config_.console.kind == ConsoleConfig::Kind::kStdio;
  Supervisor::Callbacks callbacks;
  callbacks.on_timeout = [this] {
    give_up(machine::Stop::Kind::kTimeout, fmt::format("the guest was still running after --timeout={}s",
                                                       static_cast<double>(config_.timeout_ms) / 1000));
  };
  callbacks.on_wedged = [this] {
    give_up(machine::Stop::Kind::kWedged, fmt::format("{} for --watchdog={}s",
                                                      is_overdue() ? "the workload is long overdue, and no console byte"
                                                                   : "no console byte and no word of the agent",
                                                      static_cast<double>(config_.watchdog_ms) / 1000));
  };
  // A guest that is held cannot show any: it counts as alive.
  callbacks.signs_of_life = [this, held = std::uint64_t{0}]() mutable {
    if (held_.load()) ++held;
    if (is_overdue()) return console_.bytes();
    return console_.bytes() + session_.lines() + held;
  };
  callbacks.on_end_signal = [this](int signal) {
    machine_->request_stop({machine::Stop::Kind::kInterrupted, fmt::format("ended by {}", ::strsignal(signal)),
                            static_cast<std::uint32_t>(signal)});
  };
  callbacks.on_dump_signal = [this] { dump_statistics(); };
  callbacks.on_period = [this] {
    if (on_period_) on_period_(*this);
  };
  callbacks.on_input = [this, escaped = false](std::string_view bytes) mutable -> std::size_t {
    // One byte at a time, so that what the UART has no room for is looked at once only, when it is taken.
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (escaped && bytes[i] == 'x') {
        machine_->request_stop({machine::Stop::Kind::kInterrupted, "ended from the console (Ctrl-A x)", SIGINT});
        return bytes.size();
      }
      if (machine_->console_input(bytes.substr(i, 1)) == 0) return i;
      escaped = bytes[i] == kConsoleEscape && !escaped;
    }
    return bytes.size();
  };
  if (console_file_) console_file_->begin();
  machine_->start();
  note_phase("started");
  supervisor_ = std::make_unique<Supervisor>(config, std::move(callbacks));
}

void GuestRun::limit_trial(std::optional<std::chrono::milliseconds> limit) {
  using Clock = std::chrono::steady_clock;
  trial_deadline_.store(limit ? Clock::now() + *limit : Clock::time_point::max());
}

bool GuestRun::is_overdue() const {
  return std::chrono::steady_clock::now() > trial_deadline_.load();
}

void GuestRun::hold() {
  held_.store(true);
  machine_->hold();
}

void GuestRun::release() {
  machine_->release();
  held_.store(false);
}

void GuestRun::dump_statistics() {
  std::string dump = stats::exit_statistics_table(machine_->snapshot());
  // In the thread that also ends the run: a reader that does not read must not hold it.
  (void)base::write_some(STDERR_FILENO, dump, kDumpPatience);
}

void GuestRun::wait_for_stop() {
  std::unique_lock lock(mutex_);
  stopped_.wait(lock, [&] { return has_stopped_; });
}

GuestRun::End GuestRun::end() {
  End end;
  machine_->request_stop({machine::Stop::Kind::kFinished, "ended by the VMM", 0});
  end.stop = machine_->join();
  supervisor_.reset();
  raw_terminal_.reset();
  using Kind = machine::Stop::Kind;
  if (end.stop.kind == Kind::kReset && console_.panicked()) {
    end.stop.kind = Kind::kCrashed;
    end.stop.what = "the guest's kernel panicked";
  }
  {
    const std::lock_guard lock(mutex_);
    end.diagnosis = diagnosis_;
  }
  const bool bad = end.stop.kind == Kind::kCrashed || end.stop.kind == Kind::kMisbehaved ||
                   end.stop.kind == Kind::kTimeout || end.stop.kind == Kind::kWedged;
  if (!bad) return end;
  if (end.diagnosis.empty()) end.diagnosis = machine_->describe_vcpus();
  const std::vector<std::string> lines = console_.last_lines();
  end.diagnosis += fmt::format("last {} lines of the guest's console:\n", lines.size());
  for (const std::string& line : lines) end.diagnosis += "  | " + line + "\n";
  return end;
}

}  // namespace vmm::experiment
