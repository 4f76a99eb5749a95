// SPDX-License-Identifier: Apache-2.0
#include "agent/files.hpp"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace guest {

std::optional<std::string> Files::read(const std::string& path) const {
  const int fd = open(full(path).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  char buffer[8192];
  ssize_t got = 0;
  while ((got = ::read(fd, buffer, sizeof(buffer))) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  close(fd);
  if (got < 0) return std::nullopt;
  return text;
}

std::optional<std::string> Files::read_line(const std::string& path) const {
  auto text = read(path);
  while (text && !text->empty() && text->back() == '\n') text->pop_back();
  return text;
}

int Files::write(const std::string& path, std::string_view text) const {
  const int fd = open(full(path).c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  // sysfs takes a value in one write or refuses it: a partial one is an error, not to be continued.
  ssize_t written = 0;
  do {
    written = ::write(fd, text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  const int error = written < 0 ? errno : static_cast<std::size_t>(written) != text.size() ? EIO : 0;
  close(fd);
  return error;
}

bool Files::exists(const std::string& path) const {
  return access(full(path).c_str(), F_OK) == 0;
}
bool Files::executable(const std::string& path) const {
  return access(full(path).c_str(), X_OK) == 0;
}

}  // namespace guest
