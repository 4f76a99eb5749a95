// SPDX-License-Identifier: Apache-2.0
// The instructions that C++ has no words for. Nothing here that KVM's emulator does not know.
#pragma once

#include <cstddef>
#include <cstdint>

namespace payload {

inline void outb(std::uint16_t port, std::uint8_t value) {
  asm volatile("outb %0, %1" ::"a"(value), "Nd"(port));
}
inline void outl(std::uint16_t port, std::uint32_t value) {
  asm volatile("outl %0, %1" ::"a"(value), "Nd"(port));
}
inline std::uint8_t inb(std::uint16_t port) {
  std::uint8_t value;
  asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
inline std::uint32_t inl(std::uint16_t port) {
  std::uint32_t value;
  asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
inline void outsb(std::uint16_t port, const char* data, std::size_t bytes) {
  asm volatile("rep outsb" : "+S"(data), "+c"(bytes) : "d"(port) : "memory");
}
inline void outsl(std::uint16_t port, const char* data, std::size_t words) {
  asm volatile("rep outsl" : "+S"(data), "+c"(words) : "d"(port) : "memory");
}

inline std::uint64_t rdtsc() {
  std::uint32_t low;
  std::uint32_t high;
  asm volatile("rdtsc" : "=a"(low), "=d"(high)::"memory");
  return static_cast<std::uint64_t>(high) << 32 | low;
}
inline std::uint64_t rdmsr(std::uint32_t msr) {
  std::uint32_t low;
  std::uint32_t high;
  asm volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr));
  return static_cast<std::uint64_t>(high) << 32 | low;
}
inline void wrmsr(std::uint32_t msr, std::uint64_t value) {
  asm volatile("wrmsr" ::"c"(msr), "a"(static_cast<std::uint32_t>(value)), "d"(static_cast<std::uint32_t>(value >> 32))
               : "memory");
}

struct Cpuid {
  std::uint32_t eax, ebx, ecx, edx;
};
inline Cpuid cpuid(std::uint32_t leaf, std::uint32_t subleaf = 0) {
  Cpuid r{};
  asm volatile("cpuid" : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx) : "a"(leaf), "c"(subleaf) : "memory");
  return r;
}

inline std::uint64_t read_cr3() {
  std::uint64_t value;
  asm volatile("mov %%cr3, %0" : "=r"(value));
  return value;
}
inline void write_cr3(std::uint64_t value) {
  asm volatile("mov %0, %%cr3" ::"r"(value) : "memory");
}
inline std::uint64_t read_cr4() {
  std::uint64_t value;
  asm volatile("mov %%cr4, %0" : "=r"(value));
  return value;
}
inline void write_cr4(std::uint64_t value) {
  asm volatile("mov %0, %%cr4" ::"r"(value) : "memory");
}

inline void pause() {
  asm volatile("pause" ::: "memory");
}
inline void enable_interrupts() {
  asm volatile("sti" ::: "memory");
}
inline void disable_interrupts() {
  asm volatile("cli" ::: "memory");
}
[[noreturn]] inline void halt_for_ever() {
  for (;;) asm volatile("cli; hlt" ::: "memory");
}

struct [[gnu::packed]] DescriptorTable {
  std::uint16_t limit;
  std::uint64_t base;
};
inline void load_idt(const DescriptorTable& table) {
  asm volatile("lidt %0" ::"m"(table));
}

}  // namespace payload
