// SPDX-License-Identifier: Apache-2.0
// /proc/timer_list (kernel/time/timer_list.c): are high-resolution timers active, and what drives each CPU's tick?
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "proc_interrupts.hpp"

namespace guest {

struct CpuTimers {
  bool hres_active = false;
  std::string clock_event;  // e.g. "lapic-deadline", "lapic", "pit"; empty when the text names none
};

// By CPU number. The text's order is: a "cpu: N" part for each CPU with ".hres_active : 0|1", then a "Tick Device" part
// for each, "Per CPU device: N" with "Clock Event Device: NAME".
inline std::map<unsigned, CpuTimers> parse_timer_list(std::string_view text) {
  std::map<unsigned, CpuTimers> result;
  CpuTimers* cpu = nullptr;
  CpuTimers* device = nullptr;
  const auto after = [](std::string_view line, std::string_view prefix) -> std::optional<std::string_view> {
    if (!line.starts_with(prefix)) return std::nullopt;
    line.remove_prefix(prefix.size());
    return detail::next_word(line);
  };
  while (!text.empty()) {
    const std::string_view line = detail::next_line(text);
    if (const auto word = after(line, "cpu:")) {
      const auto number = detail::to_number(*word);
      cpu = number ? &result[static_cast<unsigned>(*number)] : nullptr;
    } else if (line.starts_with("Tick Device:")) {
      cpu = nullptr;
      device = nullptr;
    } else if (const auto owner = after(line, "Per CPU device:")) {
      const auto number = detail::to_number(*owner);
      device = number ? &result[static_cast<unsigned>(*number)] : nullptr;
    } else if (const auto name = after(line, "Clock Event Device:"); name && device != nullptr) {
      if (*name != "<NULL>") device->clock_event = *name;
    } else if (cpu != nullptr && line.find(".hres_active") != std::string_view::npos) {
      const std::size_t colon = line.find(':');
      if (colon == std::string_view::npos) continue;
      std::string_view value = line.substr(colon + 1);
      cpu->hres_active = detail::next_word(value) == "1";
    }
  }
  return result;
}

}  // namespace guest
