// SPDX-License-Identifier: Apache-2.0
#include "stats/exit_times.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fmt/format.h>
#include <linux/perf_event.h>
#include <mutex>
#include <stop_token>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/error.hpp"
#include "base/ioctl.hpp"
#include "base/mapping.hpp"
#include "base/unique_fd.hpp"
#include "stats/perf_counter.hpp"

namespace vmm::stats {
namespace {

constexpr std::size_t kBuckets = 40;

// 512 KiB a vCPU: some 7,000 exits of two samples each (36 + 68 bytes), drained every 20 ms: 350,000 exits a second.
constexpr std::size_t kRingPages = 128;
constexpr auto kDrainInterval = std::chrono::milliseconds(20);

constexpr unsigned long kIocSetOutput = 0x2405;

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// A field of at most 8 bytes; nothing when the record is too short for it.
std::optional<std::uint64_t> load_field(std::span<const std::byte> raw, const TraceField& field) {
  if (field.size > sizeof(std::uint64_t) || field.offset > raw.size() || field.size > raw.size() - field.offset) {
    return std::nullopt;
  }
  std::uint64_t value = 0;
  std::memcpy(&value, raw.data() + field.offset, field.size);
  return value;
}

}  // namespace

ExitTimeAccumulator::ExitTimeAccumulator() {
  for (ExitTime& time : times_) {
    time.histogram.counts.assign(kBuckets, 0);
    time.histogram.source = Source::kTracepoint;
  }
}

void ExitTimeAccumulator::on_exit(std::uint64_t time_ns, ExitClass exit_class) {
  // Two exits without an entry between them: an entry that failed, or the last before the thread left. The first has no
  // duration and is dropped from the times; it is still in exits_by_reason.
  open_ = Open{time_ns, exit_class};
}

void ExitTimeAccumulator::on_entry(std::uint64_t time_ns) {
  if (!open_) return;
  const Open exit = *std::exchange(open_, std::nullopt);
  if (time_ns < exit.time_ns) return;  // a clock that steps back between CPUs measures nothing
  const std::uint64_t ns = time_ns - exit.time_ns;
  ExitTime& time = times_[static_cast<std::size_t>(exit.exit_class)];
  ++time.count;
  time.ns += ns;
  time.histogram.add_log2(ns);
}

std::optional<ExitRecordFormat> exit_record_format(const TraceEvent& exit, const TraceEvent& entry) {
  ExitRecordFormat format;
  format.exit_id = exit.id;
  format.entry_id = entry.id;
  for (const auto& [name, field] :
       {std::pair{"common_type", &format.common_type}, std::pair{"exit_reason", &format.exit_reason},
        std::pair{"isa", &format.isa}, std::pair{"info1", &format.info1}}) {
    const auto found = exit.fields.find(std::string_view(name));
    if (found == exit.fields.end()) return std::nullopt;
    *field = found->second;
  }
  return format;
}

std::size_t consume_exit_records(std::span<const std::byte> records, const ExitRecordFormat& format,
                                 ExitTimeAccumulator& into) {
  std::size_t at = 0;
  while (records.size() - at >= sizeof(perf_event_header)) {
    const auto header = load<perf_event_header>(records, at);
    if (header.size < sizeof header) {
      into.on_lost(1);
      return records.size();
    }
    if (header.size > records.size() - at) break;
    const auto body = records.subspan(at + sizeof header, header.size - sizeof header);
    at += header.size;
    if (header.type == PERF_RECORD_LOST) {
      // u64 id, u64 lost
      into.on_lost(body.size() >= 16 ? load<std::uint64_t>(body, 8) : 1);
      continue;
    }
    if (header.type != PERF_RECORD_SAMPLE) continue;
    // u64 time, u32 size, the raw record
    if (body.size() < 12 || load<std::uint32_t>(body, 8) > body.size() - 12) {
      into.on_lost(1);
      continue;
    }
    const auto time = load<std::uint64_t>(body, 0);
    const auto raw = body.subspan(12, load<std::uint32_t>(body, 8));
    const auto type = load_field(raw, format.common_type);
    if (type == format.entry_id) {
      into.on_entry(time);
    } else if (type == format.exit_id) {
      const auto reason = load_field(raw, format.exit_reason);
      const auto isa = load_field(raw, format.isa);
      const auto info1 = load_field(raw, format.info1);
      if (!reason || !isa || !info1) {
        into.on_lost(1);
        continue;
      }
      into.on_exit(time, classify_exit(isa == std::uint64_t{1} ? Isa::kVmx : Isa::kSvm,
                                       static_cast<std::uint32_t>(*reason), *info1));
    }
  }
  return at;
}

class ExitTimes::Impl {
 public:
  Impl(const Tracepoints& tracepoints, unsigned vcpus) : vcpus_(vcpus) {
    const TraceEvent* exit = tracepoints.find("kvm_exit");
    const TraceEvent* entry = tracepoints.find("kvm_entry");
    if (!tracepoints.usable()) {
      problem_ = tracepoints.reason();
    } else if (exit != nullptr && entry != nullptr) {
      format_ = exit_record_format(*exit, *entry);
    }
    if (problem_.empty() && !format_) problem_ = "this kernel's kvm_exit and kvm_entry lack what exit times need";
    for (Vcpu& vcpu : vcpus_) vcpu.problem = problem_.empty() ? "the vCPU's thread is not attached" : problem_;
  }

  void attach_thread(unsigned vcpu, pid_t thread) {
    const std::lock_guard lock(mutex_);
    if (!problem_.empty()) return;
    Vcpu& target = vcpus_.at(vcpu);
    target.problem = open(target, thread);
    if (target.problem.empty() && !reader_.joinable()) {
      reader_ = std::jthread([this](const std::stop_token& stop) { drain_until(stop); });
    }
  }

  void read_into(VcpuSnapshot& into) {
    const std::lock_guard lock(mutex_);
    Vcpu& vcpu = vcpus_.at(into.id);
    drain(vcpu);
    std::string reason = vcpu.problem;
    if (reason.empty() && vcpu.times.lost() > 0) {
      reason = fmt::format("{} samples were lost: the ring buffer was full", vcpu.times.lost());
    }
    for (std::size_t index = 0; index < kExitClasses; ++index) {
      const auto exit_class = static_cast<ExitClass>(index);
      const std::string ns_name = fmt::format("exit_time_ns.{}", name_of(exit_class));
      const std::string count_name = fmt::format("exit_time_count.{}", name_of(exit_class));
      if (!reason.empty()) {
        into.counters.insert_or_assign(ns_name, Value::null(Unit::kNanoseconds, Source::kTracepoint, reason));
        into.counters.insert_or_assign(count_name, Value::null(Unit::kCount, Source::kTracepoint, reason));
        into.histograms.insert_or_assign(ns_name, Histogram::null(Unit::kNanoseconds, Source::kTracepoint, reason));
        continue;
      }
      const ExitTime& time = vcpu.times.of(exit_class);
      into.counters.insert_or_assign(ns_name, Value::number(time.ns, Unit::kNanoseconds, Source::kTracepoint));
      into.counters.insert_or_assign(count_name, Value::count(time.count, Source::kTracepoint));
      into.histograms.insert_or_assign(ns_name, time.histogram);
    }
    null_silent_tracepoints(into);
  }

 private:
  struct Vcpu {
    base::UniqueFd exit_fd;
    base::UniqueFd entry_fd;  // its samples go to exit_fd's ring, so that the two stay in order
    base::Mapping ring;
    std::vector<std::byte> pending;
    ExitTimeAccumulator times;
    std::string problem;
  };

  // Empty, or why not.
  std::string open(Vcpu& vcpu, pid_t thread) {
    perf_event_attr attributes{};
    attributes.type = PERF_TYPE_TRACEPOINT;
    attributes.size = sizeof attributes;
    attributes.sample_period = 1;
    attributes.sample_type = PERF_SAMPLE_TIME | PERF_SAMPLE_RAW;
    attributes.disabled = 1;
    attributes.watermark = 1;
    attributes.wakeup_watermark = 0x7fffffff;  // never wake anybody: the reader polls by the clock
    attributes.use_clockid = 1;
    attributes.clockid = CLOCK_MONOTONIC;

    attributes.config = format_->exit_id;
    auto exit = open_perf_event(attributes, thread);
    if (exit.error != 0) return explain_perf_error(exit.error, read_perf_event_paranoid());
    attributes.config = format_->entry_id;
    auto entry = open_perf_event(attributes, thread);
    if (entry.error != 0) return explain_perf_error(entry.error, read_perf_event_paranoid());
    try {
      const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
      vcpu.ring = base::Mapping::of_file(exit.fd.get(), (1 + kRingPages) * page, 0, PROT_READ | PROT_WRITE, MAP_SHARED,
                                         "the ring buffer of exit samples");
      base::ioctl(entry.fd.get(), kIocSetOutput, static_cast<std::uintptr_t>(exit.fd.get()),
                  "PERF_EVENT_IOC_SET_OUTPUT");
    } catch (const base::Error& error) {
      vcpu.ring = base::Mapping();
      return error.what();
    }
    for (const int fd : {exit.fd.get(), entry.fd.get()}) {
      if (const int error = enable_perf_event(fd); error != 0) return base::errno_text(error);
    }
    vcpu.exit_fd = std::move(exit.fd);
    vcpu.entry_fd = std::move(entry.fd);
    return {};
  }

  void drain(Vcpu& vcpu) {
    if (vcpu.ring.size() == 0) return;
    auto& page = *reinterpret_cast<perf_event_mmap_page*>(vcpu.ring.data());
    // The kernel publishes data_head with release semantics after the data, and reads data_tail with acquire
    // (perf_event_open(2); kernel/events/ring_buffer.c, perf_output_put_handle).
    const std::uint64_t head = std::atomic_ref(page.data_head).load(std::memory_order_acquire);
    const std::uint64_t tail = page.data_tail;
    const auto data = vcpu.ring.bytes().subspan(page.data_offset, page.data_size);
    for (std::uint64_t at = tail; at < head;) {
      const std::size_t offset = at % data.size();
      const std::size_t length = std::min<std::uint64_t>(head - at, data.size() - offset);
      vcpu.pending.insert(vcpu.pending.end(), data.begin() + static_cast<std::ptrdiff_t>(offset),
                          data.begin() + static_cast<std::ptrdiff_t>(offset + length));
      at += length;
    }
    std::atomic_ref(page.data_tail).store(head, std::memory_order_release);
    const std::size_t consumed = consume_exit_records(vcpu.pending, *format_, vcpu.times);
    vcpu.pending.erase(vcpu.pending.begin(), vcpu.pending.begin() + static_cast<std::ptrdiff_t>(consumed));
  }

  void drain_until(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, stop, kDrainInterval, [&] { return stop.stop_requested(); })) {
      for (Vcpu& vcpu : vcpus_) drain(vcpu);
    }
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<Vcpu> vcpus_;
  std::optional<ExitRecordFormat> format_;
  std::string problem_;
  std::jthread reader_;  // last: stops before what it reads is gone
};

ExitTimes::ExitTimes(const Tracepoints& tracepoints, unsigned vcpus)
    : impl_(std::make_unique<Impl>(tracepoints, vcpus)) {}
ExitTimes::~ExitTimes() = default;
ExitTimes::ExitTimes(ExitTimes&&) noexcept = default;
ExitTimes& ExitTimes::operator=(ExitTimes&&) noexcept = default;

void ExitTimes::attach_thread(unsigned vcpu, pid_t thread) {
  impl_->attach_thread(vcpu, thread);
}

void ExitTimes::read_into(VcpuSnapshot& into) {
  impl_->read_into(into);
}

}  // namespace vmm::stats
