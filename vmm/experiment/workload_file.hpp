// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/parse.hpp"
#include "base/unique_fd.hpp"
#include "experiment/run_config.hpp"

namespace vmm::experiment {

// The name that the guest knows a user's workload by: the file's own. Throws BadInput for one with other signs than
// letters, digits, '.', '_' and '-', and for a name of the agent's.
std::string workload_name(const std::filesystem::path& file);

// What is run: as asked; else the guest's --workload-file; else the default. Throws BadInput when --workload names
// another than the file. Pure.
base::NamedParameters workload_of(const GuestConfig& guest, const std::optional<base::NamedParameters>& asked);

// A copy of the initrd with what the built workload `name` needs beside its program (an archive of its own, written by
// the build); nothing when it needs nothing. Throws SystemError.
std::optional<base::UniqueFd> initrd_for_built_workload(int initrd_fd, std::string_view name);

// A copy of the initrd (cpio, compressed or not) that has `file` as /bin/NAME too: an archive of its own behind it, as
// the kernel allows (Documentation/driver-api/early-userspace/buffer-format.rst). In memory. Throws BadInput for a file
// that is no ELF program, SystemError.
base::UniqueFd initrd_with_workload(int initrd_fd, const std::filesystem::path& file);

}  // namespace vmm::experiment
