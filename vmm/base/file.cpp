// SPDX-License-Identifier: Apache-2.0
#include "base/file.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "base/error.hpp"

namespace vmm::base {
namespace {

constexpr mode_t kResultMode = 0644;

}  // namespace

UniqueFd open_input(std::string_view what, const std::filesystem::path& path) {
  // O_NONBLOCK: a fifo given by mistake must fail the check below, not block here.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    throw BadInput(fmt::format("{}: cannot read '{}': {}", what, path.string(), errno_text(errno)));
  }
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) throw_errno(fmt::format("{}: fstat of '{}'", what, path.string()));
  if (!S_ISREG(status.st_mode)) {
    throw BadInput(fmt::format("{}: '{}' is {}, a regular file is needed", what, path.string(),
                               S_ISDIR(status.st_mode) ? "a directory" : "not a regular file"));
  }
  return fd;
}

std::size_t file_size_bytes(int fd, std::string_view what) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) throw_errno(fmt::format("{}: fstat", what));
  return static_cast<std::size_t>(status.st_size);
}

void read_exact(int fd, std::size_t offset, std::span<std::byte> into, std::string_view what) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = ::pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(fmt::format("{}: read", what));
    if (got == 0) {
      throw BadInput(
          fmt::format("{}: the file ends at byte {}, {} were expected", what, offset + done, offset + into.size()));
    }
    done += static_cast<std::size_t>(got);
  }
}

std::string read_text(const std::filesystem::path& path, std::size_t limit_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) throw_errno(fmt::format("open of '{}'", path.string()));
  std::string text;
  char buffer[4096];
  while (text.size() < limit_bytes) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(fmt::format("read of '{}'", path.string()));
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  throw BadInput(fmt::format("'{}' is larger than {} bytes", path.string(), limit_bytes));
}

int write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return 0;
}

int write_some(int fd, std::string& text, std::chrono::milliseconds patience) noexcept {
  // A pipe that is ready takes at least PIPE_BUF without blocking.
  const auto limit = std::chrono::steady_clock::now() + patience;
  std::size_t done = 0;
  int error = 0;
  while (done < text.size()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    pollfd wait{fd, POLLOUT, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready <= 0) {
      if (left.count() <= 0) break;
      continue;  // not yet, or interrupted
    }
    const ssize_t put = ::write(fd, text.data() + done, std::min(text.size() - done, std::size_t{PIPE_BUF}));
    if (put < 0) {
      if (errno == EINTR) continue;
      error = errno;
      break;
    }
    done += static_cast<std::size_t>(put);
  }
  text.erase(0, done);
  return error;
}

void write_result(std::string_view text) {
  if (const int error = write_all(STDOUT_FILENO, text); error != 0) {
    throw SystemError("write of the result to standard output", error);
  }
}

AtomicFile::AtomicFile(std::string_view what, const std::filesystem::path& path) : path_(path) {
  if (path == "-") return;
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd_) throw BadInput(fmt::format("{}: cannot write '{}': {}", what, path.string(), errno_text(errno)));
    return;
  }
  const std::filesystem::path directory = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::string name = (directory / fmt::format(".{}.XXXXXX", path.filename().string())).string();
  fd_ = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd_) {
    throw BadInput(fmt::format("{}: cannot write '{}': {} in directory '{}'", what, path.string(), errno_text(errno),
                               directory.string()));
  }
  temporary_ = name;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::move(other.fd_)), path_(std::move(other.path_)), temporary_(std::move(other.temporary_)) {
  other.temporary_.clear();
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::commit(std::string_view contents) {
  const int fd = fd_ ? fd_.get() : STDOUT_FILENO;
  if (const int error = write_all(fd, contents); error != 0) {
    throw SystemError(fmt::format("write of '{}' ({} bytes)", path_.string(), contents.size()), error);
  }
  if (temporary_.empty()) return;
  // fsync before rename: after a crash the name must never lead to an empty file.
  if (::fchmod(fd, kResultMode) != 0 || ::fsync(fd) != 0) throw_errno(fmt::format("fsync of '{}'", path_.string()));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw_errno(fmt::format("rename to '{}'", path_.string()));
  temporary_.clear();
  fd_.reset();
}

StreamFile::StreamFile(std::string_view what, const std::filesystem::path& path) {
  constexpr int kFlags = O_WRONLY | O_CLOEXEC;
  int fd = ::open(path.c_str(), kFlags | O_CREAT | O_EXCL, 0644);
  const bool created = fd >= 0;
  if (!created && errno == EEXIST) fd = ::open(path.c_str(), kFlags);
  if (fd < 0) throw BadInput(fmt::format("{}: cannot write '{}': {}", what, path.string(), errno_text(errno)));
  fd_ = UniqueFd(fd);
  if (created) created_ = path;
}

StreamFile::StreamFile(StreamFile&& other) noexcept
    : fd_(std::move(other.fd_)), created_(std::exchange(other.created_, {})) {}

StreamFile::~StreamFile() {
  if (!created_.empty()) ::unlink(created_.c_str());
}

void StreamFile::begin() {
  created_.clear();
  // A terminal or a pipe cannot be emptied, and need not.
  if (::ftruncate(fd_.get(), 0) != 0 && errno != EINVAL) throw_errno("ftruncate");
}

std::filesystem::path built_path(const std::filesystem::path& relative) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / relative;
}

}  // namespace vmm::base
