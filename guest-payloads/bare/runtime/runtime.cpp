// SPDX-License-Identifier: Apache-2.0
#include "runtime/runtime.hpp"

#include <cstddef>

namespace payload {
namespace {

struct [[gnu::packed]] Gate {
  std::uint16_t offset_low = 0;
  std::uint16_t selector = 0;
  std::uint8_t stack_table = 0;
  std::uint8_t type = 0;
  std::uint16_t offset_middle = 0;
  std::uint32_t offset_high = 0;
  std::uint32_t reserved = 0;
};

// The interrupted context as entry.S leaves it.
struct Frame {
  std::uint64_t r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax;
  std::uint64_t vector, error, rip, cs, rflags, rsp, ss;
};

struct Machine {
  Info info;
  Gate idt[256];
  Cpu cpus[kVcpusMaximum];
  std::atomic<std::uint32_t> started;   // set by vCPU 0 when all of this is filled
  std::atomic<std::uint32_t> arrived;   // vCPUs before the begin mark
  std::atomic<std::uint32_t> released;  // set by vCPU 0 after the begin mark
  std::atomic<std::uint32_t> finished;  // vCPUs after their work
  std::atomic<std::uint32_t> failing;   // the first vCPU that fails ends the VM
  std::atomic<std::uint32_t> channel;   // 1 while a vCPU is within a line and its reply
  Line line;
  Text<1024> error;
};
// The image's only state; a payload has no allocator, and no destructor ever runs.
constinit Machine machine{};

constexpr std::uint32_t kMsrGsBase = 0xC0000101;
constexpr std::uint16_t kCodeSelector = 0x8;
constexpr std::uint8_t kInterruptGate = 0x8E;  // present, 64-bit, interrupts off on entry
constexpr unsigned kMarkAttemptsMaximum = 50;

void set_gate(std::uint8_t vector, std::uint64_t handler) {
  Gate& gate = machine.idt[vector];
  gate.offset_low = static_cast<std::uint16_t>(handler);
  gate.offset_middle = static_cast<std::uint16_t>(handler >> 16);
  gate.offset_high = static_cast<std::uint32_t>(handler >> 32);
  gate.selector = kCodeSelector;
  gate.type = kInterruptGate;
}

}  // namespace

extern "C" {
extern const char exception_stubs[];
void payload_halt();
extern const char payload_halt_instruction[];
extern const char payload_halt_end[];
void interrupt_timer();
void interrupt_call_function_single();
void interrupt_call_function();
void interrupt_reschedule();
void interrupt_spurious();

// GCC may call these even in a freestanding program.
void* memset(void* target, int value, std::size_t bytes) {
  void* const start = target;
  asm volatile("rep stosb" : "+D"(target), "+c"(bytes) : "a"(value) : "memory");
  return start;
}
void* memcpy(void* target, const void* source, std::size_t bytes) {
  void* const start = target;
  asm volatile("rep movsb" : "+D"(target), "+S"(source), "+c"(bytes)::"memory");
  return start;
}
std::size_t strlen(const char* text) {
  std::size_t bytes = 0;
  while (text[bytes] != '\0') ++bytes;
  return bytes;
}
const void* memchr(const void* text, int value, std::size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(text);
  for (; bytes != 0; --bytes, ++at) {
    if (*at == static_cast<unsigned char>(value)) return at;
  }
  return nullptr;
}
int memcmp(const void* left, const void* right, std::size_t bytes) {
  const auto* a = static_cast<const unsigned char*>(left);
  const auto* b = static_cast<const unsigned char*>(right);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

// Called by entry.S.
[[noreturn]] void payload_start(std::uint32_t index, const Info* handed_over);
void payload_exception(Frame* frame);
void payload_interrupt(Frame* frame);
}

namespace {

void build_idt() {
  const auto address = [](void (*handler)()) { return reinterpret_cast<std::uint64_t>(handler); };
  for (std::uint32_t vector = 0; vector < 32; ++vector) {
    set_gate(static_cast<std::uint8_t>(vector), reinterpret_cast<std::uint64_t>(exception_stubs) + vector * 16);
  }
  set_gate(kVectorTimer, address(interrupt_timer));
  set_gate(kVectorCallFunctionSingle, address(interrupt_call_function_single));
  set_gate(kVectorCallFunction, address(interrupt_call_function));
  set_gate(kVectorReschedule, address(interrupt_reschedule));
  set_gate(kVectorSpurious, address(interrupt_spurious));
}

void start_cpu(std::uint32_t index) {
  Cpu& self = machine.cpus[index];
  self.self = &self;
  self.index = index;
  wrmsr(kMsrGsBase, reinterpret_cast<std::uint64_t>(&self));
  load_idt({sizeof(machine.idt) - 1, reinterpret_cast<std::uint64_t>(machine.idt)});
  LocalApic::enable();
}

std::string_view argument_text() {
  const auto* text = reinterpret_cast<const char*>(machine.info.args_address);
  std::size_t bytes = 0;
  while (bytes < machine.info.args_bytes && text[bytes] != '\0') ++bytes;
  return {text, bytes};
}

[[noreturn]] void refuse(const ArgumentError& error) {
  Text<256> what;
  what.raw(kName).raw(": argument \"").raw(error.word).raw("\": ").raw(error.what);
  if (error.maximum != 0) what.raw(" (").decimal(error.minimum).raw(" to ").decimal(error.maximum).raw(")");
  fail("bad-value", what.view(), kExitBadArguments);
}

bool resume_elsewhere(Cpu& self, Frame& frame) {
  if (self.resume_at == 0) return false;
  self.caught_vector = static_cast<std::uint32_t>(frame.vector);
  frame.rip = self.resume_at;
  self.resume_at = 0;
  return true;
}

void write_counts(Line& text) {
  text.key("vcpus").open('[');
  for (std::uint32_t i = 0; i < machine.info.vcpus; ++i) {
    const Counts& counts = machine.cpus[i].counts;
    text.open('{')
        .field("id", i)
        .field("hlt", counts.hlt.get())
        .field("hlt_left_out", counts.hlt_left_out.get())
        .field("hlt_spurious", counts.hlt_spurious.get())
        .field("ipi_sent", counts.ipi_sent.get())
        .field("ipi_skipped", counts.ipi_skipped.get())
        .field("ipi_received", counts.ipi_received.get())
        .field("timer_interrupts", counts.timer_interrupts.get())
        .field("woken_early", counts.woken_early.get())
        .field("spin_hits", counts.spin_hits.get())
        .field("spin_hits_late", counts.spin_hits_late.get())
        .field("spin_misses", counts.spin_misses.get())
        .close('}');
  }
  text.close(']');
}

}  // namespace

const Info& info() {
  return machine.info;
}
Cpu& cpu(std::uint32_t index) {
  return machine.cpus[index];
}
Cpu& this_cpu() {
  Cpu* self;
  asm volatile("mov %%gs:0, %0" : "=r"(self));
  return *self;
}

Line& line() {
  machine.line.clear();
  return machine.line;
}

namespace {

// Every write is an exit: four bytes at once.
void write_channel(std::string_view text) {
  const std::size_t words = text.size() / 4;
  outsl(kChannelData, text.data(), words);
  outsb(kChannelData, text.data() + 4 * words, text.size() % 4);
}

}  // namespace

bool send(Line& text) {
  if (text.full()) fail("too-long", "a line of the payload does not fit its buffer", kExitFailed);
  text.raw('\n');
  wait_until([] { return machine.channel.exchange(1) == 0; });
  write_channel(text.view());
  // {"mark":"retry"} is the only reply that a payload knows.
  Text<128> reply;
  for (std::uint32_t pending = inl(kChannelPending); pending != 0; --pending) {
    reply.raw(static_cast<char>(inb(kChannelData)));
  }
  machine.channel.store(0);
  return reply.view().find("\"retry\"") == std::string_view::npos;
}

void console(std::string_view text) {
  outsb(kConsolePort, text.data(), text.size());
}

void fail(std::string_view code, std::string_view what, std::uint32_t value) {
  if (machine.failing.exchange(1) != 0) {
    for (;;) pause();
  }
  // A line that was interrupted half-way, by an exception within send(), is ended first, so that this one stands alone.
  bool between_lines = false;
  for (unsigned i = 0; i < 1'000'000 && !between_lines; ++i) between_lines = machine.channel.exchange(1) == 0;
  if (!between_lines) outb(kChannelData, '\n');
  auto& text = machine.error;
  text.clear();
  text.open('{').field("type", "error").field("code", code).field("what", what).close('}').raw('\n');
  write_channel(text.view());
  exit_vm(value);
}

void exit_vm(std::uint32_t value) {
  outl(kExitPort, value);
  halt_for_ever();
}

void halt(Cpu& self) {
  self.counts.hlt.add();
  payload_halt();
}

void mark(std::string_view name) {
  for (unsigned attempt = 1; attempt <= kMarkAttemptsMaximum; ++attempt) {
    Line& text = line();
    text.open('{').field("type", "mark").field("trial", 0).field("name", name).field("attempt", attempt);
    text.key("guest").open('{');
    write_counts(text);
    text.close('}').close('}');
    if (send(text)) return;
  }
  fail("mark", "the VMM refused a mark too often", kExitFailed);
}

namespace detail {
void arrive_and_wait_for_begin(Cpu&) {
  machine.arrived.fetch_add(1);
  wait_until([] { return machine.released.load() != 0; });
}
void wait_for_all_before_begin() {
  wait_until([] { return machine.arrived.load() == machine.info.vcpus - 1; });
}
void release() {
  machine.released.store(1);
}
void arrive_and_park() {
  machine.finished.fetch_add(1);
  for (;;) pause();
}
void wait_for_all_after_work() {
  wait_until([] { return machine.finished.load() == machine.info.vcpus - 1; });
}
}  // namespace detail

Line& begin_result(std::uint32_t status, std::uint64_t operations, const Interval& interval) {
  Line& text = line();
  text.open('{').field("type", "result").field("trial", 0).field("workload", kName).field("status", status);
  text.key("seconds").seconds(cycles_to_ns(interval.cycles));
  return text.field("operations", operations).field("cycles", interval.cycles).field("tsc_khz", machine.info.tsc_khz);
}

void finish_result(Line& text) {
  write_counts(text);
  text.close('}');
  send(text);
}

void payload_start(std::uint32_t index, const Info* handed_over) {
  if (index != 0) {
    wait_until([] { return machine.started.load() != 0; });
    start_cpu(index);
    enable_interrupts();
    run(machine.cpus[index]);
    for (;;) pause();
  }

  machine.info = *handed_over;
  build_idt();
  start_cpu(0);
  const Info& info = machine.info;
  if (info.magic != kInfoMagic) fail("abi", "no PayloadInfo where rsi points", kExitFailed);
  if (info.vcpus == 0 || info.vcpus > kVcpusMaximum) fail("abi", "vCPUs not in 1 to 64", kExitFailed);
  if (info.tsc_khz == 0) fail("abi", "the TSC's frequency is not known", kExitFailed);
  if (inl(kChannelMagic) != kChannelMagicValue) {
    console("payload: no agent channel at port 0xe00\n");
    exit_vm(kExitFailed);
  }
  Arguments arguments(argument_text());
  configure(arguments);
  if (const ArgumentError* error = arguments.error()) refuse(*error);
  machine.started.store(1);
  enable_interrupts();
  exit_vm(run(machine.cpus[0]));
}

void payload_exception(Frame* frame) {
  Cpu& self = this_cpu();
  if (resume_elsewhere(self, *frame)) return;
  Text<256> what;
  what.raw("vCPU ").decimal(self.index).raw(": exception ").decimal(frame->vector);
  what.raw(", error code ").hexadecimal(frame->error).raw(", rip ").hexadecimal(frame->rip);
  what.raw(", rsp ").hexadecimal(frame->rsp).raw(", rflags ").hexadecimal(frame->rflags);
  fail("exception", what.view(), kExitException);
}

void payload_interrupt(Frame* frame) {
  Cpu& self = this_cpu();
  if (frame->rip == reinterpret_cast<std::uint64_t>(payload_halt_instruction)) {
    frame->rip = reinterpret_cast<std::uint64_t>(payload_halt_end);
    self.counts.hlt.take_back();
    self.counts.hlt_left_out.add();
  }
  if (frame->vector == kVectorTimer) {
    self.counts.timer_interrupts.add();
    resume_elsewhere(self, *frame);
  } else {
    self.counts.ipi_received.add();
  }
  LocalApic::end_of_interrupt();
}

}  // namespace payload
