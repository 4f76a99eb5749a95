// SPDX-License-Identifier: Apache-2.0
//
// make-initrd OUTPUT [--gzip] NAME=FILE…
//
// Writes an initramfs (cpio, newc): the directories that an init mounts on, /dev/console, and each FILE as /NAME, mode
// 0755. The same inputs give the same bytes: no time, owner or order of the build machine gets in. Not compressed
// unless asked: the VMM copies the file natively, whereas the guest would unpack it at the guest's speed.
// Exit status: 0; 2 bad usage or a file that cannot be read or written (one line on stderr).

#include <archive.h>
#include <archive_entry.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <vector>

namespace {

struct Node {
  mode_t mode;  // type and permissions
  dev_t device = 0;
  std::string content;
};

class Archive {
 public:
  Archive(const std::string& path, bool gzip) : archive_(archive_write_new()) {
    if (!archive_) throw std::runtime_error("out of memory");
    check(archive_write_set_format_cpio_newc(archive_.get()));
    if (gzip) {
      check(archive_write_add_filter_gzip(archive_.get()));
      check(archive_write_set_filter_option(archive_.get(), "gzip", "timestamp", nullptr));
    } else {
      check(archive_write_add_filter_none(archive_.get()));
    }
    check(archive_write_set_bytes_in_last_block(archive_.get(), 1));
    check(archive_write_open_filename(archive_.get(), path.c_str()));
  }

  void add(const std::string& name, const Node& node) {
    const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(), archive_entry_free);
    if (!entry) throw std::runtime_error("out of memory");
    archive_entry_set_pathname(entry.get(), name.c_str());
    archive_entry_set_mode(entry.get(), node.mode);
    archive_entry_set_uid(entry.get(), 0);
    archive_entry_set_gid(entry.get(), 0);
    archive_entry_set_mtime(entry.get(), 0, 0);
    archive_entry_set_ino64(entry.get(), ++inode_);
    archive_entry_set_nlink(entry.get(), S_ISDIR(node.mode) ? 2 : 1);
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(node.content.size()));
    if (S_ISCHR(node.mode)) archive_entry_set_rdev(entry.get(), node.device);
    check(archive_write_header(archive_.get(), entry.get()));
    const la_ssize_t written = archive_write_data(archive_.get(), node.content.data(), node.content.size());
    if (written != static_cast<la_ssize_t>(node.content.size())) check(ARCHIVE_FATAL);
  }

  void finish() { check(archive_write_close(archive_.get())); }

 private:
  void check(int result) {
    if (result == ARCHIVE_OK) return;
    const char* text = archive_error_string(archive_.get());
    throw std::runtime_error(text != nullptr ? text : "libarchive failed");
  }
  struct Free {
    void operator()(archive* a) const { archive_write_free(a); }
  };
  std::unique_ptr<archive, Free> archive_;
  la_int64_t inode_ = 0;
};

std::string read_file(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) throw std::runtime_error(path + ": " + std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw std::runtime_error(path + ": not a regular file");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() != static_cast<std::size_t>(status.st_size)) throw std::runtime_error(path + ": cannot be read");
  return text;
}

// With every directory that leads to `name`.
void add_file(std::map<std::string, Node>& nodes, const std::string& name, Node node) {
  for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    nodes.emplace(name.substr(0, slash), Node{S_IFDIR | 0755, 0, {}});
  }
  if (!nodes.emplace(name, std::move(node)).second) throw std::runtime_error("/" + name + ": given twice");
}

std::string checked_name(std::string name) {
  while (name.starts_with('/')) name.erase(0, 1);
  if (name.empty() || name.ends_with('/') || ("/" + name + "/").find("/../") != std::string::npos) {
    throw std::runtime_error("\"" + name + "\" is no name of a file in an initramfs");
  }
  return name;
}

void run(std::vector<std::string> arguments) {
  const bool gzip = std::erase(arguments, "--gzip") != 0;
  if (arguments.size() < 2 || arguments.front().starts_with("--")) {
    throw std::runtime_error("usage: make-initrd OUTPUT [--gzip] NAME=FILE...");
  }
  std::map<std::string, Node> nodes;  // sorted: a directory comes before what is in it
  for (const char* directory : {"bin", "dev", "proc", "sys", "tmp"}) {
    nodes.emplace(directory, Node{S_IFDIR | 0755, 0, {}});
  }
  nodes.emplace("dev/console", Node{S_IFCHR | 0600, makedev(5, 1), {}});
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::size_t equals = arguments[i].find('=');
    if (equals == std::string::npos) throw std::runtime_error("\"" + arguments[i] + "\": not NAME=FILE");
    add_file(nodes, checked_name(arguments[i].substr(0, equals)),
             Node{S_IFREG | 0755, 0, read_file(arguments[i].substr(equals + 1))});
  }
  // Under another name first: an interrupted build leaves no half initramfs that looks complete.
  const std::string& output = arguments.front();
  const std::string temporary = output + ".tmp";
  try {
    Archive archive(temporary, gzip);
    for (const auto& [name, node] : nodes) archive.add(name, node);
    archive.finish();
    if (std::rename(temporary.c_str(), output.c_str()) != 0) {
      throw std::runtime_error(output + ": " + std::strerror(errno));
    }
  } catch (...) {
    std::remove(temporary.c_str());
    throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make-initrd: %s\n", error.what());
    return 2;
  }
}
