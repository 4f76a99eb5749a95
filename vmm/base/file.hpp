// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"

namespace vmm::base {

// Opens an input file for reading. Throws BadInput naming `what` ("--kernel") and the path: missing, unreadable, a
// directory, or not a regular file.
UniqueFd open_input(std::string_view what, const std::filesystem::path& path);

// The size of an open regular file, bytes. Throws SystemError.
std::size_t file_size_bytes(int fd, std::string_view what);

// Fills `into` from `offset`; throws BadInput when the file is shorter (it shrank), SystemError on failure.
void read_exact(int fd, std::size_t offset, std::span<std::byte> into, std::string_view what);

// A whole small file (at most `limit_bytes`); for /proc and /sys, whose size is unknown beforehand.
std::string read_text(const std::filesystem::path& path, std::size_t limit_bytes = 1 << 20);

// Writes all bytes, retrying EINTR and short writes. Returns 0 or an errno.
int write_all(int fd, std::string_view text) noexcept;

// Writes what `fd` takes within `patience` without being blocked by a reader that does not read, and removes it from
// `text`. Returns 0, also when a rest stays, or an errno.
int write_some(int fd, std::string& text, std::chrono::milliseconds patience) noexcept;

// The result on standard output. Throws SystemError: a result that nobody could read is no success.
void write_result(std::string_view text);

// A result file that appears whole or not at all: a temporary in the same directory, opened (and thus tested) before
// the run, renamed onto `path` by commit() after fsync. Without commit() the temporary is removed and an older file
// stays as it was. "-" is standard output: written at commit(). A path that exists and is no regular file (a fifo,
// /dev/stdout) is opened and written in place.
class AtomicFile {
 public:
  // Throws BadInput when the directory cannot be written.
  AtomicFile(std::string_view what, const std::filesystem::path& path);
  AtomicFile(AtomicFile&&) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // Throws SystemError, e.g. for a full disk: then `path` is untouched.
  void commit(std::string_view contents);

 private:
  UniqueFd fd_;
  std::filesystem::path path_;
  std::filesystem::path temporary_;
};

// An output file that is written as it comes. Until begin() nothing of an older file is touched, and one that was made
// for it goes again: a run that is refused leaves nothing.
class StreamFile {
 public:
  // Throws BadInput when it cannot be written.
  StreamFile(std::string_view what, const std::filesystem::path& path);
  StreamFile(StreamFile&&) noexcept;
  StreamFile& operator=(StreamFile&&) = delete;
  ~StreamFile();

  // Empties it. Throws SystemError.
  void begin();
  int fd() const noexcept { return fd_.get(); }

 private:
  UniqueFd fd_;
  std::filesystem::path created_;  // empty: it was there before, or has begun
};

// A file that the build put beside the executable's directory: `relative` to build/ of a build/bin/vmm.
std::filesystem::path built_path(const std::filesystem::path& relative);

}  // namespace vmm::base
