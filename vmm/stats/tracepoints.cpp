// SPDX-License-Identifier: Apache-2.0
#include "stats/tracepoints.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <event-parse.h>
#include <exception>
#include <fmt/format.h>
#include <memory>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "stats/perf_counter.hpp"

// tracefs.h of libtracefs 1.6 (Debian 12) has an inline function that is not valid C++, so its one function we need is
// declared here: 1 when tracefs is mounted, and where.
extern "C" int tracefs_tracing_dir_is_mounted(bool mount, const char** path);

namespace vmm::stats {
namespace {

constexpr std::size_t kMaxRecordBytes = 64 << 10;

constexpr std::array<std::string_view, 7> kEvents{"kvm_apic_accept_irq", "kvm_apic_ipi",  "kvm_inj_virq",   "kvm_exit",
                                                  "kvm_entry",           "kvm_hypercall", "kvm_vcpu_wakeup"};

struct TepDelete {
  void operator()(tep_handle* tep) const noexcept { tep_free(tep); }
};
struct Free {
  void operator()(void* memory) const noexcept { std::free(memory); }
};

void add_fields(TraceEvent& event, tep_format_field** raw) {
  // The array is ours to free, the fields are not (libtraceevent's manual, tep_event_fields).
  const std::unique_ptr<tep_format_field*, Free> fields(raw);
  if (!fields) return;
  for (tep_format_field** field = fields.get(); *field != nullptr; ++field) {
    const tep_format_field& f = **field;
    if (f.name == nullptr || f.offset < 0 || f.size <= 0) continue;
    const auto offset = static_cast<std::size_t>(f.offset);
    const auto size = static_cast<std::size_t>(f.size);
    if (offset > kMaxRecordBytes || size > kMaxRecordBytes) continue;
    event.fields[f.name] = {offset, size, (f.flags & TEP_FIELD_IS_SIGNED) != 0};
  }
}

// The text of a small file of /proc, /sys or tracefs; nothing when it cannot be read.
std::optional<std::string> try_read(const std::filesystem::path& path) {
  try {
    return base::read_text(path);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

bool parameter_on(const std::filesystem::path& path) {
  const auto text = try_read(path);
  return text && !text->empty() && (text->front() == 'Y' || text->front() == '1');
}

}  // namespace

std::optional<TraceEvent> parse_event_format(std::string_view system, std::string_view format) {
  // The print format is a C expression that we have no use for and that libtraceevent cannot parse for every event.
  std::string text(format.substr(0, format.find("print fmt:")));
  if (text.empty() || text.size() > kMaxRecordBytes) return std::nullopt;
  text += "print fmt: \"\"\n";
  tep_set_loglevel(TEP_LOG_NONE);  // its warnings would go to stderr
  const std::unique_ptr<tep_handle, TepDelete> tep(tep_alloc());
  if (!tep) return std::nullopt;
  const std::string system_name(system);
  if (tep_parse_event(tep.get(), text.c_str(), text.size(), system_name.c_str()) != TEP_ERRNO__SUCCESS) {
    return std::nullopt;
  }
  if (tep_get_events_count(tep.get()) != 1) return std::nullopt;
  tep_event* parsed = tep_get_event(tep.get(), 0);
  if (parsed == nullptr || parsed->name == nullptr || parsed->id <= 0) return std::nullopt;
  TraceEvent event;
  event.name = parsed->name;
  event.id = static_cast<std::uint64_t>(parsed->id);
  add_fields(event, tep_event_common_fields(parsed));
  add_fields(event, tep_event_fields(parsed));
  return event;
}

ApicVirtualization detect_apic_virtualization(const std::filesystem::path& modules) {
  // kvm_amd's avic covers IPIs from the start; kvm_intel's enable_ipiv only adds them to enable_apicv.
  if (parameter_on(modules / "kvm_amd/parameters/avic")) return ApicVirtualization::kIpiVirtualized;
  if (parameter_on(modules / "kvm_intel/parameters/enable_apicv")) {
    return parameter_on(modules / "kvm_intel/parameters/enable_ipiv") ? ApicVirtualization::kIpiVirtualized
                                                                      : ApicVirtualization::kApicv;
  }
  return ApicVirtualization::kNone;
}

std::optional<int> read_perf_event_paranoid() {
  const auto text = try_read("/proc/sys/kernel/perf_event_paranoid");
  if (!text) return std::nullopt;
  int level = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), level);
  return error == std::errc{} && end != text->data() ? std::optional(level) : std::nullopt;
}

std::string explain_perf_error(int error_number, std::optional<int> paranoid) {
  const std::string what = base::errno_text(error_number);
  switch (error_number) {
    case EACCES:
    case EPERM:
      return fmt::format(
          "perf_event_open refused: {}; kernel.perf_event_paranoid is {}: run with CAP_PERFMON, or set it to 1 or less",
          what, paranoid ? std::to_string(*paranoid) : "unreadable");
    case EMFILE:
    case ENFILE:
      return fmt::format("perf_event_open failed: {}; raise the limit of open files (ulimit -n)", what);
    case ENOSYS:
      return fmt::format("perf_event_open failed: {}; this kernel has no perf events (CONFIG_PERF_EVENTS)", what);
    case ENOENT:
    case EINVAL:
      return fmt::format("perf_event_open failed: {}; this kernel does not count that tracepoint", what);
    default:
      return fmt::format("perf_event_open failed: {}", what);
  }
}

Tracepoints Tracepoints::unavailable(std::string problem, std::string remedy) {
  Tracepoints result;
  result.problem_ = problem.empty() ? "tracepoints are unavailable" : std::move(problem);
  result.remedy_ = std::move(remedy);
  return result;
}

Tracepoints Tracepoints::of(std::map<std::string, TraceEvent, std::less<>> events, Isa isa, ApicVirtualization apic) {
  Tracepoints result;
  result.events_ = std::move(events);
  result.isa_ = isa;
  result.apic_virtualization_ = apic;
  return result;
}

std::string Tracepoints::reason() const {
  return remedy_.empty() ? problem_ : fmt::format("{}: {}", problem_, remedy_);
}

const TraceEvent* Tracepoints::find(std::string_view event) const {
  const auto found = events_.find(event);
  return found == events_.end() ? nullptr : &found->second;
}

Tracepoints Tracepoints::probe() {
  const auto filesystems = try_read("/proc/filesystems");
  if (filesystems && filesystems->find("\ttracefs\n") == std::string::npos) {
    return unavailable("this kernel has no tracefs", "use a kernel with CONFIG_FTRACE and CONFIG_EVENT_TRACING");
  }
  // `false`: never mount it behind the user's back.
  const char* mounted_at = nullptr;
  if (tracefs_tracing_dir_is_mounted(false, &mounted_at) <= 0 || mounted_at == nullptr) {
    return unavailable("tracefs is not mounted", "mount -t tracefs nodev /sys/kernel/tracing");
  }
  const std::filesystem::path tracing = mounted_at;
  if (::access(tracing.c_str(), R_OK | X_OK) != 0) {
    return unavailable(fmt::format("no permission to read {}", tracing.string()),
                       "run as root, or mount -o remount,gid=GROUP,mode=750 " + tracing.string());
  }
  std::error_code error;
  if (!std::filesystem::is_directory(tracing / "events/kvm", error)) {
    return unavailable("this kernel has no kvm tracepoints",
                       "load the module kvm (modprobe kvm_amd or kvm_intel) or use a kernel with CONFIG_EVENT_TRACING");
  }
  Tracepoints result;
  for (const std::string_view name : kEvents) {
    const auto text = try_read(tracing / "events/kvm" / name / "format");
    if (!text) continue;
    auto event = parse_event_format("kvm", *text);
    if (event && event->name == name) result.events_.emplace(name, std::move(*event));
  }
  const TraceEvent* exit = result.find("kvm_exit");
  if (exit == nullptr) {
    return unavailable(fmt::format("{} cannot be read", (tracing / "events/kvm/kvm_exit/format").string()),
                       "run as root, or mount -o remount,gid=GROUP,mode=750 " + tracing.string());
  }
  const auto trial =
      PerfCounter::open({.event_id = exit->id, .filter = "exit_reason==0", .thread = 0, .inherit = true});
  if (!trial.counting()) return unavailable("tracepoints cannot be counted", trial.read().reason());
  result.isa_ = isa_of_cpuinfo(try_read("/proc/cpuinfo").value_or(std::string()));
  result.apic_virtualization_ = detect_apic_virtualization();
  return result;
}

}  // namespace vmm::stats
