// SPDX-License-Identifier: Apache-2.0
// Two processes that wake each other by a channel, and nothing else: the wake-up itself, without a network stack.
//   one: wake the other; wait; --think-us; again.   other: wait; --think-us; wake.
// latency_us: a round trip as the first sees it, from before its wake to after its wait; it holds the other's think
// time.
#pragma once

#include "latency.hpp"
#include "processes.hpp"
#include "workload.hpp"

namespace guest {

// `Channel` has two ends: wait(end) sleeps until that end was woken once, wake(end) wakes it.
template <class Channel>
int run_wake_pingpong(const char* name, int argc, char** argv) {
  return run_workload(name, argc, argv, [name](Options& options) {
    const std::uint64_t iterations = options.number("iterations", 2000, 1, 100'000'000);
    const std::uint64_t think_ns = options.number("think-us", 0, 0, 10'000'000) * 1000;
    const std::vector<unsigned> one_cpus = options.cpus("pin-client");
    const std::vector<unsigned> other_cpus = options.cpus("pin-server");
    options.finish();

    Channel channel;
    const pid_t other = start_process(name, [&] {
      pin_to(other_cpus);
      for (std::uint64_t i = 0; i < iterations; ++i) {
        channel.wait(1);
        if (think_ns > 0) sleep_ns(think_ns);
        channel.wake(0);
      }
    });
    pin_to(one_cpus);
    std::vector<std::uint64_t> latencies(iterations);
    wait_for_go();
    const std::uint64_t start = monotonic_ns();
    for (std::uint64_t& latency : latencies) {
      const std::uint64_t begin = monotonic_ns();
      channel.wake(1);
      channel.wait(0);
      latency = monotonic_ns() - begin;
      if (think_ns > 0) sleep_ns(think_ns);
    }
    const std::uint64_t ns = monotonic_ns() - start;
    expect_success(other, "the other process");
    JsonWriter result;
    result.field_billionths("seconds", ns).field("operations", iterations);
    result.raw("latency_us", latency_json(std::move(latencies))).field("think_us", think_ns / 1000);
    report_done(result);
  });
}

}  // namespace guest
