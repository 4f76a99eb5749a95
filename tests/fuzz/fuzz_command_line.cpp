// SPDX-License-Identifier: Apache-2.0
// Any text as a command line: refused with BadInput in one line, or kept with every byte of it. The first two bytes are
// the capacity. Build: clang++ -fsanitize=fuzzer,address,undefined.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "boot/command_line.hpp"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t capacity = data[0] | std::size_t{data[1]} << 8;
  const std::string input(data + 2, data + size);
  const std::string_view text(input);
  const std::size_t split = text.find('=');
  vmm::boot::CommandLine line;
  try {
    line.add(text);
    require(line.text() == text);
    if (split != text.npos) line.add(text.substr(0, split), text.substr(split + 1));
    const std::string& kept = line.within(capacity, "the kernel");
    require(kept.size() <= capacity && kept.starts_with(text));
  } catch (const vmm::base::BadInput& error) {
    require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  require(line.text().find('\0') == std::string::npos && line.text().find('\n') == std::string::npos);
  return 0;
}
