// SPDX-License-Identifier: Apache-2.0
#include "base/ioctl.hpp"

#include <bit>
#include <cerrno>
#include <sys/ioctl.h>

#include "base/error.hpp"

namespace vmm::base {

int try_ioctl(int fd, unsigned long request, std::uintptr_t argument) noexcept {
  const int result = ::ioctl(fd, request, argument);
  return result < 0 ? -errno : result;
}

int try_ioctl(int fd, unsigned long request, const void* argument) noexcept {
  return try_ioctl(fd, request, std::bit_cast<std::uintptr_t>(argument));
}

int ioctl(int fd, unsigned long request, std::uintptr_t argument, const char* name) {
  int result = 0;
  do {
    result = try_ioctl(fd, request, argument);
  } while (result == -EINTR);
  if (result < 0) throw SystemError(name, -result);
  return result;
}

int ioctl(int fd, unsigned long request, const void* argument, const char* name) {
  return ioctl(fd, request, std::bit_cast<std::uintptr_t>(argument), name);
}

}  // namespace vmm::base
