// SPDX-License-Identifier: Apache-2.0
#include "stats/perf_counter.hpp"

#include <array>
#include <cerrno>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/ioctl.hpp"
#include "stats/tracepoints.hpp"

namespace vmm::stats {
namespace {

// PERF_EVENT_IOC_* from linux/perf_event.h, which spells them with C casts.
constexpr unsigned long kIocEnable = 0x2400;
constexpr unsigned long kIocSetFilter = 0x40082406;

}  // namespace

PerfOpenResult open_perf_event(perf_event_attr& attributes, pid_t thread, int cpu) noexcept {
  constexpr int kNoGroup = -1;
  const long fd = ::syscall(SYS_perf_event_open, &attributes, thread, cpu, kNoGroup,
                            static_cast<unsigned long>(PERF_FLAG_FD_CLOEXEC));
  if (fd < 0) return {base::UniqueFd(), errno};
  return {base::UniqueFd(static_cast<int>(fd)), 0};
}

int set_perf_filter(int fd, const std::string& filter) noexcept {
  const int result = base::try_ioctl(fd, kIocSetFilter, filter.c_str());
  return result < 0 ? -result : 0;
}

int enable_perf_event(int fd) noexcept {
  const int result = base::try_ioctl(fd, kIocEnable, std::uintptr_t{0});
  return result < 0 ? -result : 0;
}

PerfCounter PerfCounter::open(const Spec& spec) {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_TRACEPOINT;
  attributes.size = sizeof attributes;
  attributes.config = spec.event_id;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  attributes.disabled = 1;  // until the filter is in place
  attributes.inherit = spec.inherit ? 1 : 0;

  auto [fd, error] = open_perf_event(attributes, spec.thread, spec.cpu);
  if (error != 0) return PerfCounter(explain_perf_error(error, read_perf_event_paranoid()));
  if (!spec.filter.empty()) {
    error = set_perf_filter(fd.get(), spec.filter);
    if (error != 0) {
      return PerfCounter(
          fmt::format("this kernel refuses the event filter '{}': {}", spec.filter, base::errno_text(error)));
    }
  }
  error = enable_perf_event(fd.get());
  if (error != 0) return PerfCounter(fmt::format("enabling a perf event failed: {}", base::errno_text(error)));
  PerfCounter counter{std::string()};
  counter.fd_ = std::move(fd);
  return counter;
}

Value interpret_perf_reading(std::uint64_t count, std::uint64_t enabled_ns, std::uint64_t running_ns) {
  if (running_ns < enabled_ns) {
    return Value::null(Unit::kCount, Source::kTracepoint,
                       fmt::format("the kernel counted for {} of {} ns only", running_ns, enabled_ns));
  }
  return Value::count(count, Source::kTracepoint);
}

Value PerfCounter::read() const {
  if (!fd_.valid()) return Value::null(Unit::kCount, Source::kTracepoint, reason_);
  std::array<std::uint64_t, 3> values{};  // count, time enabled, time running
  ssize_t got = 0;
  do {
    got = ::read(fd_.get(), values.data(), sizeof values);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof values)) {
    return Value::null(Unit::kCount, Source::kTracepoint,
                       got < 0 ? fmt::format("reading a perf event failed: {}", base::errno_text(errno))
                               : "reading a perf event came up short");
  }
  return interpret_perf_reading(values[0], values[1], values[2]);
}

}  // namespace vmm::stats
