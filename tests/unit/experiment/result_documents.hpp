// SPDX-License-Identifier: Apache-2.0
// Result documents of `vmm compare` for tests, made here.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "experiment/compare_analysis.hpp"

namespace vmm::experiment {

using Json = nlohmann::ordered_json;

inline Json counter_json(std::optional<std::uint64_t> number) {
  return {{"value", number ? Json(*number) : Json(nullptr)}, {"unit", "count"}, {"source", "tracepoint"}};
}

// A trial of 1,000 operations; `hlt` exits on vCPU 0 and twice as many on vCPU 1.
inline Json guest_trial(const std::string& arm, unsigned block, double seconds, std::optional<std::uint64_t> hlt,
                        std::optional<std::uint64_t> ipi) {
  Json json{{"arm", arm},    {"block", block},      {"position", 0U},        {"seconds", seconds},
            {"valid", true}, {"operations", 1000U}, {"vcpus", Json::array()}};
  json["workload"]["latency_us"] = {
      {"p50", 10.0}, {"p99", 20.0}, {"p999", nullptr}, {"buckets_below_ns", {{1024U, 900U}, {2048U, 100U}}}};
  for (unsigned id = 0; id < 2; ++id) {
    const auto times = [&](std::optional<std::uint64_t> n) { return n ? std::optional(*n * (id + 1)) : n; };
    json["vcpus"].push_back(
        {{"id", id},
         {"counters",
          {{"hlt_exits", counter_json(times(hlt))},
           {"ipi_injected_call_function", counter_json(times(ipi))},
           {"ipi_injected_reschedule", counter_json(ipi ? std::optional<std::uint64_t>(1) : std::nullopt)},
           {"guest_ipi_call_function", counter_json(77)},
           {"guest_ipi_reschedule", counter_json(0)},
           {"cpu_on_ns", counter_json(500'000'000)}}},
         {"histograms", {{"guest_idle_gap_ns", {{"counts", {0U, 0U, 5U, 9U, 1U}}}}}}});
  }
  return json;
}

inline Json host_trial(unsigned block, double seconds) {
  return {{"arm", "host"},      {"block", block}, {"position", 1U},
          {"seconds", seconds}, {"valid", true},  {"vcpus", Json::array()}};
}

// Eight blocks of: host 5 s; none 10 s, 1,000 + 2,000 HLT exits, 40 + 80 + 2 IPIs; spin 8 s, 10 + 20 and 0; control as
// none. Noise that all arms of a block share, and a little that they do not.
inline Json result_document(std::size_t blocks = 8) {
  Json json{{"schema", kCompareSchema}, {"seed", 7U}, {"partial", false}};
  json["config"] = {{"workload", {{"name", "tcp-pingpong"}}}, {"baseline", "none"}};
  json["arms"] = {{{"name", "host"}, {"host", true}},
                  {{"name", "none"}, {"host", false}},
                  {{"name", "spin"}, {"host", false}, {"found_ns", 5'000'000U}},
                  {{"name", "none (again)"}, {"host", false}, {"null_of", "none"}}};
  json["host"] = {{"kernel", "6.12"}, {"microcode", nullptr}};
  json["warm_up"] = {guest_trial("none", 0, 12, 1000, 40)};
  json["trials"] = Json::array();
  for (unsigned block = 0; block < blocks; ++block) {
    const double shared = 1 + 0.1 * (block % 3);
    const double own = 0.002 * (block % 4);
    json["trials"].push_back(host_trial(block, 5 * shared));
    json["trials"].push_back(guest_trial("none", block, 10 * shared, 1000 + block % 5, 40));
    json["trials"].push_back(guest_trial("spin", block, 8 * (shared + own), 10 + block % 5, 0));
    json["trials"].push_back(
        guest_trial("none (again)", block, 10 * (shared + (block % 2 == 0 ? own : -own)), 1000, 40));
  }
  return json;
}

}  // namespace vmm::experiment
