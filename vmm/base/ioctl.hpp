// SPDX-License-Identifier: Apache-2.0
// The only place that calls ioctl(2). Everything above goes through these, so that every failure carries the
// operation's name and errno, and EINTR is handled once.
#pragma once

#include <cstdint>

namespace vmm::base {

// An ioctl whose failure ends the set-up. Retries EINTR. Returns the (non-negative) result; throws SystemError.
int ioctl(int fd, unsigned long request, std::uintptr_t argument, const char* name);
int ioctl(int fd, unsigned long request, const void* argument, const char* name);

// An ioctl whose failure is an answer. Never retries. Returns the result, or -errno.
int try_ioctl(int fd, unsigned long request, std::uintptr_t argument) noexcept;
int try_ioctl(int fd, unsigned long request, const void* argument) noexcept;

}  // namespace vmm::base
