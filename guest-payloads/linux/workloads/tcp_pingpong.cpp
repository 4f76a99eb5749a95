// SPDX-License-Identifier: Apache-2.0
//
// The ping-pong of the idle-spin patch's mail (its server.py and client.py), as two processes on 127.0.0.1:
//   server: send a line of text; receive it back; sleep 200 us; again.
//   client: receive; sleep 20 us; send what was received; --iterations times.
// The seed's number is 90,000 iterations; `seconds` is what the seed's client prints: from connected to the last send.
// Sockets are as Python leaves them: TCP_NODELAY off (each side waits for the other, so Nagle has nothing to hold
// back).
//
// latency_us: a round trip as the server sees it, from before its send to after its receive. It contains the client's
// sleep, not the server's. `operations` of them, one each iteration.

#include <arpa/inet.h>
#include <csignal>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <utility>

#include "latency.hpp"
#include "processes.hpp"
#include "workload.hpp"

namespace {

using guest::Fd;
using guest::pin_to;
using guest::SharedLatencies;
using guest::throw_errno;

constexpr std::string_view kMessage = "a response line of text";

struct Settings {
  std::uint64_t iterations;
  std::uint64_t client_sleep_ns;
  std::uint64_t server_sleep_ns;
  std::uint16_t port;
  std::vector<unsigned> client_cpus;
  std::vector<unsigned> server_cpus;
};

// False when the other side has closed before `bytes` came. A stream may hand over a message in parts.
bool receive(int socket, char* buffer, std::size_t bytes) {
  for (std::size_t got = 0; got < bytes;) {
    const ssize_t part = recv(socket, buffer + got, bytes - got, 0);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) throw_errno("recv");
    if (part == 0) return false;
    got += static_cast<std::size_t>(part);
  }
  return true;
}

void transmit(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t part = send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) throw_errno("send");
    text.remove_prefix(static_cast<std::size_t>(part));
  }
}

void expect_message(std::string_view got) {
  if (got != kMessage) throw std::runtime_error("received something else than the message");
}

// The number of messages echoed, when the client has closed the connection.
std::uint64_t serve(int connection, const Settings& settings, SharedLatencies& latencies) {
  char buffer[kMessage.size()];
  std::uint64_t echoed = 0;
  while (true) {
    const std::uint64_t start = guest::monotonic_ns();
    try {
      transmit(connection, kMessage);
      if (!receive(connection, buffer, sizeof(buffer))) break;
    } catch (const std::system_error& error) {
      // The client closes after its last send, with a message of ours unread: the connection may be reset.
      const int code = error.code().value();
      if (echoed >= settings.iterations && (code == ECONNRESET || code == EPIPE)) break;
      throw;
    }
    latencies.add(guest::monotonic_ns() - start);
    expect_message({buffer, sizeof(buffer)});
    ++echoed;
    guest::sleep_ns(settings.server_sleep_ns);
  }
  return echoed;
}

struct Played {
  std::uint64_t ns;
  std::uint64_t received;
};

Played play(int socket, const Settings& settings) {
  char buffer[kMessage.size()];
  std::uint64_t received = 0;
  const std::uint64_t start = guest::monotonic_ns();
  for (std::uint64_t i = 0; i < settings.iterations; ++i) {
    if (!receive(socket, buffer, sizeof(buffer))) throw std::runtime_error("the server closed the connection");
    expect_message({buffer, sizeof(buffer)});
    ++received;
    guest::sleep_ns(settings.client_sleep_ns);
    transmit(socket, {buffer, sizeof(buffer)});
  }
  return {guest::monotonic_ns() - start, received};
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

Fd listen_on(std::uint16_t port) {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.get() < 0) throw_errno("socket");
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const sockaddr_in address = loopback(port);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw_errno("bind to 127.0.0.1:" + std::to_string(port));
  }
  if (listen(listener.get(), 1) != 0) throw_errno("listen");
  return listener;
}

std::uint16_t port_of(const Fd& listener) {
  sockaddr_in address{};
  socklen_t bytes = sizeof(address);
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) throw_errno("getsockname");
  return ntohs(address.sin_port);
}

Fd connect_to(std::uint16_t port) {
  Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (client.get() < 0) throw_errno("socket");
  const sockaddr_in address = loopback(port);
  if (connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    throw_errno("connect to 127.0.0.1:" + std::to_string(port));
  }
  return client;
}

bool nodelay(int socket) {
  int value = 0;
  socklen_t bytes = sizeof(value);
  if (getsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &value, &bytes) != 0) throw_errno("TCP_NODELAY");
  return value != 0;
}

// The server's process, from fork to end. Exit status 0: it echoed as many messages as were asked for.
int server_process(Fd connection, Fd go, const Settings& settings, SharedLatencies& latencies) {
  try {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin_to(settings.server_cpus);
    char c = 0;
    ssize_t got = 0;
    do {
      got = read(go.get(), &c, 1);
    } while (got < 0 && errno == EINTR);
    if (got != 1) return 1;  // the client has given up
    const std::uint64_t echoed = serve(connection.get(), settings, latencies);
    if (echoed == settings.iterations) return 0;
    throw std::runtime_error("echoed " + std::to_string(echoed) + " messages instead of " +
                             std::to_string(settings.iterations));
  } catch (const std::exception& error) {
    const std::string line = std::string("tcp-pingpong: server: ") + error.what() + "\n";
    return write(STDERR_FILENO, line.data(), line.size()) < 0 ? 1 : 1;
  }
}

void run(guest::Options& options) {
  Settings settings{};
  settings.iterations = options.number("iterations", 2000, 1, 100'000'000);
  settings.client_sleep_ns = options.number("client-sleep-us", 20, 0, 10'000'000) * 1000;
  settings.server_sleep_ns = options.number("server-sleep-us", 200, 0, 10'000'000) * 1000;
  settings.port = static_cast<std::uint16_t>(options.number("port", 0, 0, 65535));
  settings.client_cpus = options.cpus("pin-client");
  settings.server_cpus = options.cpus("pin-server");
  options.finish();

  SharedLatencies latencies(settings.iterations);
  Fd listener = listen_on(settings.port);
  Fd client = connect_to(port_of(listener));
  Fd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (connection.get() < 0) throw_errno("accept");
  listener.reset();
  int ends[2];
  if (pipe(ends) != 0) throw_errno("pipe");
  Fd go_read(ends[0]);
  Fd go_write(ends[1]);

  const pid_t server = fork();
  if (server < 0) throw_errno("fork");
  if (server == 0) {
    client.reset();
    go_write.reset();
    _exit(server_process(std::move(connection), std::move(go_read), settings, latencies));
  }
  connection.reset();
  go_read.reset();
  pin_to(settings.client_cpus);
  guest::wait_for_go();
  guest::write_all(go_write.get(), "g");
  const Played played = play(client.get(), settings);
  const bool client_nodelay = nodelay(client.get());
  client.reset();

  guest::expect_success(server, "the server's process");

  guest::JsonWriter result;
  result.field_billionths("seconds", played.ns).field("operations", played.received);
  result.raw("latency_us", guest::latency_json(latencies.values()));
  result.field("messages", played.received * 2).field("message_bytes", std::uint64_t{kMessage.size()});
  result.field("client_sleep_us", settings.client_sleep_ns / 1000);
  result.field("server_sleep_us", settings.server_sleep_ns / 1000);
  result.field("timer_slack_ns", static_cast<std::uint64_t>(prctl(PR_GET_TIMERSLACK)));
  result.field("tcp_nodelay", client_nodelay);
  guest::report_done(result);
}

}  // namespace

int main(int argc, char** argv) {
  return guest::run_workload("tcp-pingpong", argc, argv, run);
}
