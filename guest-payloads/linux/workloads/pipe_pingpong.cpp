// SPDX-License-Identifier: Apache-2.0
// Ping-pong of one byte over two pipes (wake_pingpong.hpp).

#include "wake_pingpong.hpp"

namespace {

class Pipes {
 public:
  Pipes() {
    for (Ends& ends : ends_) {
      int fds[2];
      if (pipe(fds) != 0) guest::throw_errno("pipe");
      ends = {guest::Fd(fds[0]), guest::Fd(fds[1])};
    }
  }
  void wait(int end) {
    char byte = 0;
    ssize_t got = 0;
    do {
      got = read(ends_[end].read.get(), &byte, 1);
    } while (got < 0 && errno == EINTR);
    if (got != 1) guest::throw_errno("read of a pipe");
  }
  void wake(int end) { guest::write_all(ends_[end].write.get(), "p"); }

 private:
  struct Ends {
    guest::Fd read, write;
  };
  Ends ends_[2];
};

}  // namespace

int main(int argc, char** argv) {
  return guest::run_wake_pingpong<Pipes>("pipe-pingpong", argc, argv);
}
