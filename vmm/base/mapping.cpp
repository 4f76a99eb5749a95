// SPDX-License-Identifier: Apache-2.0
#include "base/mapping.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/error.hpp"

namespace vmm::base {

Mapping Mapping::anonymous(std::size_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw_errno(fmt::format("mmap of {} bytes of memory", bytes));
  return {static_cast<std::byte*>(address), bytes};
}

Mapping Mapping::of_file(int fd, std::size_t bytes, std::int64_t offset, int prot, int flags, const char* what) {
  void* address = ::mmap(nullptr, bytes, prot, flags, fd, offset);
  if (address == MAP_FAILED) throw_errno(fmt::format("mmap of {} ({} bytes)", what, bytes));
  return {static_cast<std::byte*>(address), bytes};
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    Mapping old(std::move(*this));
    address_ = std::exchange(other.address_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Mapping::~Mapping() {
  if (address_ != nullptr) ::munmap(address_, bytes_);
}

}  // namespace vmm::base
