// SPDX-License-Identifier: Apache-2.0
// Can this KVM execute CMPXCHG16B in kernel mode? Linux' slab allocator does, wherever CPUID offers it.

#include "runtime/runtime.hpp"

namespace payload {

constinit const std::string_view kName = "probe-cmpxchg16b";

void configure(Arguments&) {}

std::uint32_t run(Cpu& self) {
  if (self.index != 0) return kExitSuccess;
  if ((cpuid(1).ecx >> 13 & 1) == 0) fail("not-offered", "CPUID has no CMPXCHG16B", kExitNotOffered);
  alignas(16) std::uint64_t pair[2] = {0x1111, 0x2222};
  const auto exchange = [&pair](std::uint64_t low, std::uint64_t high, std::uint64_t new_low, std::uint64_t new_high) {
    bool done = false;
    asm volatile("lock cmpxchg16b %1"
                 : "=@ccz"(done), "+m"(pair), "+a"(low), "+d"(high)
                 : "b"(new_low), "c"(new_high)
                 : "memory");
    return done;
  };
  const bool replaced = exchange(0x1111, 0x2222, 0x3333, 0x4444) && pair[0] == 0x3333 && pair[1] == 0x4444;
  const bool refused = !exchange(0x1111, 0x2222, 0x5555, 0x6666) && pair[0] == 0x3333 && pair[1] == 0x4444;
  return replaced && refused ? kExitSuccess : kExitFailed;
}

}  // namespace payload
