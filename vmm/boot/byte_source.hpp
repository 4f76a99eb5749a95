// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace vmm::boot {

// The bytes of an input file, wherever they are: a descriptor, or memory (tests, fuzzing). The one way in which this
// layer reads anything.
class ByteSource {
 public:
  // An open regular file; `option` ("--kernel") begins every message about it. Does not own `fd`, which must outlive
  // it. Throws SystemError when the size cannot be had.
  static ByteSource of_file(int fd, std::string_view option);
  // Bytes in memory, which must outlive it.
  static ByteSource of_bytes(std::span<const std::byte> bytes, std::string_view option = "--kernel");

  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  const std::string& option() const noexcept { return option_; }

  // True when [offset, offset + bytes) lies within the source; false for a wrap-around.
  bool contains(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    return offset <= size_bytes_ && bytes <= size_bytes_ - offset;
  }
  // Fills `into` from `offset`. Throws BadInput when the source is shorter, SystemError when reading fails.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  using Reader = std::function<void(std::uint64_t offset, std::span<std::byte> into)>;
  ByteSource(std::string_view option, std::uint64_t size_bytes, Reader reader)
      : option_(option), size_bytes_(size_bytes), reader_(std::move(reader)) {}

  std::string option_;
  std::uint64_t size_bytes_;
  Reader reader_;
};

}  // namespace vmm::boot
