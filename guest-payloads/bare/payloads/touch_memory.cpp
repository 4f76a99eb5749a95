// SPDX-License-Identifier: Apache-2.0
//
// Writes a word at both ends of every MiB of RAM, then reads them all back: RAM that is missing, read-only or shows up
// at two addresses does not pass. RAM above 4 GiB, which the VMM's page tables do not map, is reached through a window
// of 1 GiB at 512 GiB of virtual space, with page tables of this payload's own.
//
// MiBs that are in use (the VMM's tables and this image below 8 MiB, the stacks at the end of the low RAM) are written,
// read and put back one by one.
// Result: operations = MiBs touched, and how many of them lie above 4 GiB.

#include "runtime/runtime.hpp"

namespace payload {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kGiB = 1ULL << 30;
constexpr std::uint64_t kInUseBelow = 8 * kMiB;
constexpr std::uint64_t kStacks = 2 * kMiB;  // 64 stacks of 16 KiB and some room
constexpr std::uint64_t kWindow = 512 * kGiB;
constexpr std::uint64_t kPresentWritable = 0x3;
constexpr std::uint64_t kLargePage = 0x80;
constexpr std::uint64_t kAddressMask = 0x000F'FFFF'FFFF'F000;

struct alignas(4096) Table {
  std::uint64_t entries[512];
};
constinit Table pml4{};
constinit Table window_pointers{};
constinit Table window_directory{};

extern "C" const char payload_image_end[];

void prepare_window() {
  const auto* current = reinterpret_cast<const Table*>(read_cr3() & kAddressMask);
  for (std::size_t i = 0; i < 512; ++i) pml4.entries[i] = current->entries[i];
  pml4.entries[kWindow / (512 * kGiB)] = reinterpret_cast<std::uint64_t>(&window_pointers) | kPresentWritable;
  window_pointers.entries[0] = reinterpret_cast<std::uint64_t>(&window_directory) | kPresentWritable;
}

void move_window(std::uint64_t physical) {
  for (std::uint64_t i = 0; i < 512; ++i) {
    window_directory.entries[i] = (physical + i * 2 * kMiB) | kLargePage | kPresentWritable;
  }
  write_cr3(reinterpret_cast<std::uint64_t>(&pml4));
}

std::uint64_t low_end() {
  return info().memory_bytes < kHoleStart ? info().memory_bytes : kHoleStart;
}
std::uint64_t high_end() {
  return kHoleEnd + info().memory_bytes - low_end();
}

bool in_use(std::uint64_t physical) {
  return physical < kInUseBelow || (physical < kHoleEnd && physical >= low_end() - kStacks - kMiB);
}

// Calls visit(physical address of a word, pointer to it) for the words of all MiBs, lowest first.
template <class Visit>
bool visit_words(Visit visit) {
  const auto words_of = [&visit](std::uint64_t physical, std::uint64_t virtual_address) {
    for (const std::uint64_t offset : {std::uint64_t{0}, kMiB - 8}) {
      if (!visit(physical + offset, reinterpret_cast<volatile std::uint64_t*>(virtual_address + offset))) return false;
    }
    return true;
  };
  // Address 0 is skipped: C++ lets no pointer go there.
  for (std::uint64_t at = kMiB; at + kMiB <= low_end(); at += kMiB) {
    if (!words_of(at, at)) return false;
  }
  for (std::uint64_t at = kHoleEnd; at + kMiB <= high_end(); at += kMiB) {
    if (at % kGiB == 0) move_window(at);
    if (!words_of(at, kWindow + at % kGiB)) return false;
  }
  return true;
}

[[noreturn]] void wrong(std::uint64_t physical, std::uint64_t expected, std::uint64_t found) {
  Text<128> what;
  what.raw("at ").hexadecimal(physical).raw(": wrote ").hexadecimal(expected).raw(", read ").hexadecimal(found);
  fail("memory", what.view(), kExitFailed);
}

std::uint64_t value_for(std::uint64_t physical) {
  return physical ^ 0x5A5A'0000'0000'A5A5;
}

}  // namespace

constinit const std::string_view kName = "touch-memory";

void configure(Arguments&) {
  if (reinterpret_cast<std::uint64_t>(payload_image_end) > kInUseBelow) {
    fail("memory", "the payload's image reaches above 8 MiB", kExitFailed);
  }
}

std::uint32_t run(Cpu& self) {
  if (self.index != 0) return kExitSuccess;
  mark("begin");
  const std::uint64_t start = rdtsc();
  prepare_window();
  std::uint64_t words = 0;
  std::uint64_t high_words = 0;
  visit_words([&](std::uint64_t physical, volatile std::uint64_t* word) {
    const std::uint64_t before = *word;
    *word = value_for(physical);
    if (*word != value_for(physical)) wrong(physical, value_for(physical), *word);
    if (in_use(physical)) *word = before;
    ++words;
    if (physical >= kHoleEnd) ++high_words;
    return true;
  });
  visit_words([](std::uint64_t physical, const volatile std::uint64_t* word) {
    if (!in_use(physical) && *word != value_for(physical)) wrong(physical, value_for(physical), *word);
    return true;
  });
  const Interval interval{rdtsc() - start};
  mark("end");
  Line& text = begin_result(0, words / 2, interval);
  text.field("mib_above_4g", high_words / 2).field("memory_bytes", info().memory_bytes);
  finish_result(text);
  return kExitSuccess;
}

}  // namespace payload
