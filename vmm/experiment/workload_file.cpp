// SPDX-License-Identifier: Apache-2.0
#include "experiment/workload_file.hpp"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <elf.h>
#include <fmt/format.h>
#include <memory>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/file.hpp"

namespace vmm::experiment {
namespace {

using base::BadInput;

constexpr std::size_t kAlignment = 4;  // of an archive's begin
constexpr std::size_t kWorkloadLimitBytes = 256 << 20;

std::string read_whole(int fd, std::string_view what) {
  std::string bytes(base::file_size_bytes(fd, what), '\0');
  base::read_exact(fd, 0, std::as_writable_bytes(std::span(bytes)), what);
  return bytes;
}

struct FreeArchive {
  void operator()(archive* a) const { archive_write_free(a); }
};
struct FreeEntry {
  void operator()(archive_entry* e) const { archive_entry_free(e); }
};

void check(archive* a, int result) {
  if (result == ARCHIVE_OK) return;
  const char* text = archive_error_string(a);
  throw base::HostUnable(fmt::format("--workload-file: libarchive: {}", text != nullptr ? text : "failed"));
}

bool is_plain(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.front() != '.' && std::ranges::all_of(name, plain);
}

// The initrd in memory, so that another archive may follow.
base::UniqueFd copy_of_initrd(int initrd_fd) {
  base::UniqueFd copy(::memfd_create("initrd", MFD_CLOEXEC));
  if (!copy) base::throw_errno("memfd_create");
  std::string initrd = read_whole(initrd_fd, "--initrd");
  initrd.append((kAlignment - initrd.size() % kAlignment) % kAlignment, '\0');
  if (const int error = base::write_all(copy.get(), initrd); error != 0)
    throw base::SystemError("write to memory", error);
  return copy;
}

// One program in a cpio archive, appended to `fd`.
void append_archive(int fd, const std::string& name, const std::string& program) {
  const std::unique_ptr<archive, FreeArchive> cpio(archive_write_new());
  check(cpio.get(), archive_write_set_format_cpio_newc(cpio.get()));
  check(cpio.get(), archive_write_open_fd(cpio.get(), fd));
  const std::unique_ptr<archive_entry, FreeEntry> entry(archive_entry_new());
  archive_entry_set_pathname(entry.get(), ("bin/" + name).c_str());
  archive_entry_set_mode(entry.get(), S_IFREG | 0755);
  archive_entry_set_nlink(entry.get(), 1);
  archive_entry_set_size(entry.get(), static_cast<la_int64_t>(program.size()));
  check(cpio.get(), archive_write_header(cpio.get(), entry.get()));
  if (archive_write_data(cpio.get(), program.data(), program.size()) != static_cast<la_ssize_t>(program.size())) {
    check(cpio.get(), ARCHIVE_FATAL);
  }
  check(cpio.get(), archive_write_close(cpio.get()));
}

}  // namespace

std::string workload_name(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  if (!is_plain(name)) {
    throw BadInput(
        fmt::format("--workload-file: '{}' is no name for a workload; letters, digits, '.', '_' and '-' work", name));
  }
  return name;
}

base::NamedParameters workload_of(const GuestConfig& guest, const std::optional<base::NamedParameters>& asked) {
  if (guest.workload_file.empty()) return asked.value_or(base::NamedParameters{"tcp-pingpong", {}});
  const std::string name = workload_name(guest.workload_file);
  if (!asked) return {name, {}};
  if (asked->name != name) {
    throw BadInput(fmt::format("--workload: '{}' is not the --workload-file, which is called '{}'", asked->name, name));
  }
  return *asked;
}

std::optional<base::UniqueFd> initrd_for_built_workload(int initrd_fd, std::string_view name) {
  const std::filesystem::path archive = base::built_path(fmt::format("guest/workload-{}", name));
  if (!is_plain(name) || !std::filesystem::exists(archive)) return std::nullopt;
  base::UniqueFd both = copy_of_initrd(initrd_fd);
  const std::string more = base::read_text(archive, kWorkloadLimitBytes);
  if (const int error = base::write_all(both.get(), more); error != 0)
    throw base::SystemError("write to memory", error);
  return both;
}

base::UniqueFd initrd_with_workload(int initrd_fd, const std::filesystem::path& file) {
  const base::UniqueFd input = base::open_input("--workload-file", file);
  if (base::file_size_bytes(input.get(), "--workload-file") > kWorkloadLimitBytes) {
    throw BadInput(fmt::format("--workload-file: '{}' has more than 256 MiB", file.string()));
  }
  const std::string program = read_whole(input.get(), "--workload-file");
  if (!program.starts_with(ELFMAG)) {
    throw BadInput(fmt::format("--workload-file: '{}' is no ELF program; a static x86-64 one works", file.string()));
  }
  base::UniqueFd both = copy_of_initrd(initrd_fd);
  append_archive(both.get(), workload_name(file), program);
  return both;
}

}  // namespace vmm::experiment
