// SPDX-License-Identifier: Apache-2.0
#include "machine/console.hpp"

#include <gtest/gtest.h>
#include <string_view>

namespace vmm::machine {
namespace {

void say(Console& console, std::string_view text) {
  for (const char c : text) console.put(static_cast<std::uint8_t>(c));
}

// A kernel that resets only after its stack dump: the line itself has left the last lines by then.
TEST(Console, APanicIsRememberedHoweverMuchFollows) {
  Console console(Console::Style::kOff, -1);
  say(console, "[    1.0] Kernel panic - not syncing: Attempted to kill init!\n");
  for (int line = 0; line < 100; ++line) say(console, "[    1.0]  ? do_exit+0x1/0x2\n");
  EXPECT_TRUE(console.panicked());
  EXPECT_EQ(console.last_lines().size(), Console::kLastLines);
}

TEST(Console, OtherLinesAreNoPanic) {
  Console console(Console::Style::kOff, -1);
  say(console, "Kernel panic? no: not syncing\nKernel panic - not sync");
  EXPECT_FALSE(console.panicked());
  say(console, "ing");
  EXPECT_FALSE(console.panicked()) << "a line counts when it is whole";
  say(console, "\r\n");
  EXPECT_TRUE(console.panicked());
}

}  // namespace
}  // namespace vmm::machine
