// SPDX-License-Identifier: Apache-2.0
// Can this KVM restore and save SSE state in kernel mode? Linux does it at every switch of tasks (XRSTOR, XSAVE).

#include "runtime/runtime.hpp"

namespace payload {
namespace {

constexpr std::uint64_t kCr4Osfxsr = 1U << 9;
constexpr std::uint64_t kCr4Osxsave = 1U << 18;
constexpr std::uint32_t kX87AndSse = 3;

// SDM vol. 1, 13.4: the legacy region and the header are all that x87 and SSE state need.
struct alignas(64) Area {
  std::uint16_t control_word;
  std::uint8_t pointers[22];
  std::uint32_t mxcsr;
  std::uint32_t mxcsr_mask;
  std::uint64_t st[16];
  std::uint64_t xmm[32];
  std::uint64_t unused[12];
  std::uint64_t state_present;
  std::uint64_t header[7];
};
static_assert(sizeof(Area) == 576);

constinit Area given{};
constinit Area saved{};

}  // namespace

constinit const std::string_view kName = "probe-xsave";

void configure(Arguments&) {}

std::uint32_t run(Cpu& self) {
  if (self.index != 0) return kExitSuccess;
  if ((cpuid(1).ecx >> 26 & 1) == 0) fail("not-offered", "CPUID has no XSAVE", kExitNotOffered);
  write_cr4(read_cr4() | kCr4Osfxsr | kCr4Osxsave);
  asm volatile("xsetbv" ::"c"(0), "a"(kX87AndSse), "d"(0));
  // The values that a reset gives the two control registers (SDM vol. 3, table 9-1): others could be refused.
  given.control_word = 0x37F;
  given.mxcsr = 0x1F80;
  given.state_present = kX87AndSse;
  for (std::uint64_t i = 0; i < 32; ++i) given.xmm[i] = 0x0123'4567'89AB'CDEF ^ i << 32;
  asm volatile("xrstor64 %0" ::"m"(given), "a"(kX87AndSse), "d"(0) : "memory");
  asm volatile("xsave64 %0" : "+m"(saved) : "a"(kX87AndSse), "d"(0) : "memory");
  for (std::uint64_t i = 0; i < 32; ++i) {
    if (saved.xmm[i] != given.xmm[i]) return kExitFailed;
  }
  return kExitSuccess;
}

}  // namespace payload
