// SPDX-License-Identifier: Apache-2.0
#include "experiment/progress.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace vmm::experiment {
namespace {

TEST(ProgressBar, SaysHowFarWhatAndHowLong) {
  EXPECT_EQ(progress_bar({10, 40, 185, "block 3, guest-spin=50us"}, 79),
            "[#####...............] 10/40, 3:05 left, block 3, guest-spin=50us");
  EXPECT_EQ(progress_bar({0, 40, -1, "warm_up host"}, 79), "[....................] 0/40, warm_up host");
  EXPECT_EQ(progress_bar({40, 40, 0, "x"}, 79), "[####################] 40/40, 0:00 left, x");
  EXPECT_EQ(progress_bar({1, 2, 7'322, "x"}, 79), "[##########..........] 1/2, 2:02:02 left, x");
}

TEST(ProgressBar, NeverWiderThanTheTerminalNorFullerThanFull) {
  EXPECT_EQ(progress_bar({3, 4, 1e300, std::string(200, 'x')}, 79).size(), 79u);
  EXPECT_EQ(progress_bar({5, 4, 0, ""}, 79).substr(0, 26), "[####################] 5/5");
  EXPECT_EQ(progress_bar({0, 0, 0, ""}, 79).substr(0, 26), "[....................] 0/1");
}

TEST(Progress, PlainLinesWhereThereIsNoTerminal) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  {
    Progress progress(fds[1], "compare");
    EXPECT_FALSE(progress.has_bar());
    progress.update({1, 2, 3, "nothing of this"});
    progress.line("one line");
  }
  ::close(fds[1]);
  char text[256];
  const ssize_t got = ::read(fds[0], text, sizeof text);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(got)), "compare: one line\n");
  ::close(fds[0]);
}

// The other end of a terminal that a program writes to.
class Terminal {
 public:
  Terminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    if (::grantpt(master_) != 0 || ::unlockpt(master_) != 0) throw std::runtime_error("no pseudo terminal");
    slave_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
  }
  ~Terminal() {
    ::close(slave_);
    ::close(master_);
  }
  int fd() const { return slave_; }
  std::string shown() const {
    char text[1024];
    const ssize_t got = ::read(master_, text, sizeof text);
    return {text, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  }

 private:
  int master_;
  int slave_ = -1;
};

TEST(Progress, LinesPassAboveTheBarAndNothingOfItStays) {
  ::setenv("TERM", "xterm", 1);
  const Terminal terminal;
  {
    Progress progress(terminal.fd(), "compare");
    ASSERT_TRUE(progress.has_bar());
    progress.update({1, 2, -1, "a"});
    EXPECT_EQ(terminal.shown(), "\r\x1b[K[##########..........] 1/2, a");
    progress.line("word");
    EXPECT_EQ(terminal.shown(), "\r\x1b[Kcompare: word\r\n[##########..........] 1/2, a");
    progress.clear();
    EXPECT_EQ(terminal.shown(), "\r\x1b[K");
    progress.line("alone");
    EXPECT_EQ(terminal.shown(), "compare: alone\r\n");
    progress.update({2, 2, 0, "b"});
    EXPECT_EQ(terminal.shown(), "\r\x1b[K[####################] 2/2, 0:00 left, b");
  }
  EXPECT_EQ(terminal.shown(), "\r\x1b[K");
}

TEST(Progress, NoBarOnADumbTerminal) {
  ::setenv("TERM", "dumb", 1);
  const Terminal terminal;
  EXPECT_FALSE(Progress(terminal.fd(), "compare").has_bar());
}

}  // namespace
}  // namespace vmm::experiment
