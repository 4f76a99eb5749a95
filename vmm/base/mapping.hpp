// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace vmm::base {

// The one owner of an mmap()ed range.
class Mapping {
 public:
  Mapping() = default;
  // Private anonymous memory, zero until touched, not reserved in swap. Throws SystemError.
  static Mapping anonymous(std::size_t bytes);
  // Maps `bytes` of `fd` from `offset`; `prot` and `flags` as in mmap(2). Throws SystemError naming `what`.
  static Mapping of_file(int fd, std::size_t bytes, std::int64_t offset, int prot, int flags, const char* what);

  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const noexcept { return address_; }
  std::size_t size() const noexcept { return bytes_; }
  std::span<std::byte> bytes() const noexcept { return {address_, bytes_}; }

 private:
  Mapping(std::byte* address, std::size_t bytes) noexcept : address_(address), bytes_(bytes) {}
  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace vmm::base
