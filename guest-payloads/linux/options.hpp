// SPDX-License-Identifier: Apache-2.0
// A workload's command line: --key=value, strict.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_list.hpp"

namespace guest {

// Its text is one line that names the option, the value and what would do.
class OptionError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Ask for every option, then call finish(): what nobody asked for is an error. All members throw OptionError.
class Options {
 public:
  explicit Options(const std::vector<std::string>& arguments) {
    for (const std::string& argument : arguments) {
      const std::size_t equals = argument.find('=');
      if (!argument.starts_with("--") || equals == std::string::npos || equals == 2) {
        throw OptionError("\"" + argument + "\": not --key=value");
      }
      entries_.push_back({argument.substr(2, equals - 2), argument.substr(equals + 1), false});
    }
  }

  // Both limits included.
  std::uint64_t number(std::string_view key, std::uint64_t fallback, std::uint64_t minimum, std::uint64_t maximum) {
    const Entry* entry = take(key);
    if (entry == nullptr) return fallback;
    const auto value = detail::to_number(entry->value);
    if (!value || *value < minimum || *value > maximum) {
      throw OptionError("--" + entry->key + "=" + entry->value + ": must be a whole number from " +
                        std::to_string(minimum) + " to " + std::to_string(maximum));
    }
    return *value;
  }

  // Empty when not given.
  std::vector<unsigned> cpus(std::string_view key) {
    const Entry* entry = take(key);
    if (entry == nullptr) return {};
    const auto list = parse_cpu_list(entry->value);
    if (!list) throw OptionError("--" + entry->key + "=" + entry->value + ": must be a list of CPUs, as 0-3,5");
    return *list;
  }

  void finish() const {
    for (const Entry& entry : entries_) {
      if (!entry.taken) throw OptionError("--" + entry.key + ": unknown option, or given twice");
    }
  }

 private:
  struct Entry {
    std::string key, value;
    bool taken;
  };
  const Entry* take(std::string_view key) {
    for (Entry& entry : entries_) {
      if (entry.key == key) {
        entry.taken = true;
        return &entry;
      }
    }
    return nullptr;
  }

  std::vector<Entry> entries_;
};

}  // namespace guest
