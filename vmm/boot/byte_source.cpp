// SPDX-License-Identifier: Apache-2.0
#include "boot/byte_source.hpp"

#include <algorithm>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/file.hpp"

namespace vmm::boot {

ByteSource ByteSource::of_file(int fd, std::string_view option) {
  return ByteSource(option, base::file_size_bytes(fd, option),
                    [fd, what = std::string(option)](std::uint64_t offset, std::span<std::byte> into) {
                      base::read_exact(fd, offset, into, what);
                    });
}

ByteSource ByteSource::of_bytes(std::span<const std::byte> bytes, std::string_view option) {
  return ByteSource(option, bytes.size(), [bytes](std::uint64_t offset, std::span<std::byte> into) {
    std::ranges::copy(bytes.subspan(offset, into.size()), into.begin());
  });
}

void ByteSource::read(std::uint64_t offset, std::span<std::byte> into) const {
  if (!contains(offset, into.size())) {
    throw base::BadInput(fmt::format("{}: the file's {} bytes do not hold {} bytes at offset {}", option_, size_bytes_,
                                     into.size(), offset));
  }
  reader_(offset, into);
}

}  // namespace vmm::boot
