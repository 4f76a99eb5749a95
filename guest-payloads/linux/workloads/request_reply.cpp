// SPDX-License-Identifier: Apache-2.0
// A service with an open loop: requests arrive at Poisson's times whatever the service does, three processes
// (generator, server, collector) over datagram sockets.
//   --requests (1000) in all, --rate (200) a second on average, --service-us (20) of work each, --seed (1) of the
//   times.
//
// latency_us: from the time a request *should* have been sent to its reply at the collector. A generator that is late
// because the machine is busy makes requests late, not their number smaller: no coordinated omission. `seconds`: from
// the first due time to the last reply; `late_us_max`: how late the generator ever was.

#include <cmath>
#include <random>
#include <sys/socket.h>

#include "latency.hpp"
#include "processes.hpp"
#include "workload.hpp"

namespace {

using guest::Fd;
using guest::throw_errno;

struct Message {
  std::uint64_t due_ns;
};

std::pair<Fd, Fd> sockets() {
  int fds[2];
  // Sequenced packets: whole messages, in order, and the reader sees the writer's end.
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) != 0) throw_errno("socketpair");
  return {Fd(fds[0]), Fd(fds[1])};
}

void send_message(const Fd& socket, const Message& message) {
  ssize_t sent = 0;
  do {
    sent = send(socket.get(), &message, sizeof(message), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != ssize_t{sizeof(message)}) throw_errno("send");
}

// False at the other side's end.
bool receive_message(const Fd& socket, Message& message) {
  ssize_t got = 0;
  do {
    got = recv(socket.get(), &message, sizeof(message), 0);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return false;
  if (got != ssize_t{sizeof(message)}) throw_errno("recv");
  return true;
}

void work_for(std::uint64_t ns) {
  const std::uint64_t end = guest::monotonic_ns() + ns;
  while (guest::monotonic_ns() < end) {
  }
}

void sleep_until(std::uint64_t due_ns) {
  const timespec due{static_cast<time_t>(due_ns / 1'000'000'000), static_cast<long>(due_ns % 1'000'000'000)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr) == EINTR) {
  }
}

// Exponential gaps, by inversion: the same times for the same seed with every library.
std::vector<std::uint64_t> due_offsets_ns(std::uint64_t requests, std::uint64_t rate, std::uint64_t seed) {
  constexpr double kScale = 0x1p-53;
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> offsets;
  double at_ns = 0;
  for (std::uint64_t i = 0; i < requests; ++i) {
    const double uniform = (static_cast<double>(random() >> 11) + 0.5) * kScale;
    at_ns += -std::log(uniform) * 1e9 / static_cast<double>(rate);
    offsets.push_back(static_cast<std::uint64_t>(at_ns));
  }
  return offsets;
}

void run(guest::Options& options) {
  const std::uint64_t requests = options.number("requests", 1000, 1, 10'000'000);
  const std::uint64_t rate = options.number("rate", 200, 1, 1'000'000);
  const std::uint64_t service_ns = options.number("service-us", 20, 0, 1'000'000) * 1000;
  const std::uint64_t seed = options.number("seed", 1, 0, UINT64_MAX);
  options.finish();
  const std::vector<std::uint64_t> offsets = due_offsets_ns(requests, rate, seed);

  guest::SharedLatencies latencies(requests);
  auto [to_server, at_server] = sockets();
  auto [to_collector, at_collector] = sockets();
  const pid_t server =
      guest::start_process("request-reply: server", [&, &requests_in = at_server, &replies = to_collector] {
        to_server.reset();
        Message message{};
        while (receive_message(requests_in, message)) {
          work_for(service_ns);
          send_message(replies, message);
        }
      });
  const pid_t collector = guest::start_process("request-reply: collector", [&, &replies = at_collector] {
    to_server.reset();
    to_collector.reset();
    Message message{};
    std::uint64_t got = 0;
    for (; receive_message(replies, message); ++got) latencies.add(guest::monotonic_ns() - message.due_ns);
    if (got != requests) throw std::runtime_error("collected " + std::to_string(got) + " replies");
  });
  at_server.reset();
  at_collector.reset();
  to_collector.reset();

  guest::wait_for_go();
  const std::uint64_t start = guest::monotonic_ns();
  std::uint64_t late_ns = 0;
  for (const std::uint64_t offset : offsets) {
    const std::uint64_t due_ns = start + offset;
    if (guest::monotonic_ns() < due_ns) sleep_until(due_ns);
    late_ns = std::max(late_ns, guest::monotonic_ns() - due_ns);
    send_message(to_server, {due_ns});
  }
  to_server.reset();  // the server's end, and then the collector's
  guest::expect_success(server, "the server");
  guest::expect_success(collector, "the collector");
  const std::uint64_t ns = guest::monotonic_ns() - start;
  guest::JsonWriter result;
  result.field_billionths("seconds", ns).field("operations", requests);
  result.raw("latency_us", guest::latency_json(latencies.values()));
  result.field("rate_per_s", rate).field("service_us", service_ns / 1000).field_thousandths("late_us_max", late_ns);
  guest::report_done(result);
}

}  // namespace

int main(int argc, char** argv) {
  return guest::run_workload("request-reply", argc, argv, run);
}
