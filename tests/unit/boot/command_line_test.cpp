// SPDX-License-Identifier: Apache-2.0
#include "boot/command_line.hpp"

#include "images.hpp"

namespace vmm::boot::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(CommandLine, JoinsWordsWithOneBlank) {
  CommandLine line;
  line.add("console=ttyS0 quiet").add("").add("panic", "-1").add("root=/dev/sda");
  EXPECT_EQ(line.text(), "console=ttyS0 quiet panic=-1 root=/dev/sda");
}

TEST(CommandLine, QuotesValuesWithBlanks) {
  CommandLine line;
  line.add("init.args", "a b").add("x", "").add("tab", "a\tb");
  EXPECT_EQ(line.text(), "init.args=\"a b\" x= tab=\"a\tb\"");
}

TEST(CommandLine, AQuoteWithinAValueIsRefused) {
  CommandLine line;
  EXPECT_THAT(bad_input([&] { line.add("key", "a\"b"); }),
              AllOf(HasSubstr("--cmdline"), HasSubstr("a\"b"), HasSubstr("key")));
  EXPECT_EQ(line.text(), "");
}

TEST(CommandLine, AnOpenQuoteIsRefused) {
  CommandLine line;
  EXPECT_THAT(bad_input([&] { line.add("dyndbg=\"file a.c +p"); }), HasSubstr("left open"));
  line.add("dyndbg=\"file a.c +p\"");
  EXPECT_EQ(line.text(), "dyndbg=\"file a.c +p\"");
}

TEST(CommandLine, NamesAreChecked) {
  CommandLine line;
  for (const char* key : {"", "a b", "a=b", "a\"b"}) {
    EXPECT_THAT(bad_input([&] { line.add(key, "value"); }), HasSubstr("no name of a parameter")) << key;
  }
}

TEST(CommandLine, ControlCharactersAreRefused) {
  using namespace std::string_view_literals;
  for (const std::string_view bad : {"a\0b"sv, "a\nb"sv, "a\rb"sv, "a\x1b[b"sv, "a\x7f"sv}) {
    CommandLine line("--payload");
    EXPECT_THAT(bad_input([&] { line.add(bad); }),
                AllOf(HasSubstr("--payload: character 2 of 'a'"), HasSubstr("control character 0x")));
    EXPECT_THAT(bad_input([&] { line.add("key", bad); }), HasSubstr("control character"));
  }
  CommandLine line;
  EXPECT_THAT(bad_input([&] { line.add("a\0b"sv); }), HasSubstr("0x00"));
  line.add("a\tb");
  line.add("\xc3\xa9");  // UTF-8 passes
  EXPECT_EQ(line.text(), "a\tb \xc3\xa9");
}

TEST(CommandLine, AtTheLimitIsFineAndOneOverIsNot) {
  CommandLine line;
  line.add("first second=2 third");
  EXPECT_EQ(line.within(20, "the kernel"), "first second=2 third");
  const std::string message = bad_input([&] { (void)line.within(19, "the kernel"); });
  EXPECT_EQ(message,
            "--cmdline: 20 characters are 1 more than the kernel takes (19); these words would be lost: 'third'");
}

TEST(CommandLine, SaysEveryWordThatWouldBeLost) {
  CommandLine line;
  line.add("one two three four");
  const std::string message = bad_input([&] { (void)line.within(8, "the kernel"); });
  EXPECT_THAT(message, AllOf(HasSubstr("'three', 'four'"), Not(HasSubstr("'two'"))));
  // A word cut in two is lost as well.
  EXPECT_THAT(bad_input([&] { (void)line.within(6, "the kernel"); }), HasSubstr("'two', 'three', 'four'"));
  EXPECT_THAT(bad_input([&] { (void)line.within(0, "the kernel"); }), HasSubstr("'one', 'two', 'three', 'four'"));
}

TEST(CommandLine, AQuotedWordIsOneWord) {
  CommandLine line;
  line.add("a b=\"c d e\" f");
  EXPECT_THAT(bad_input([&] { (void)line.within(5, "the kernel"); }), HasSubstr("lost: 'b=\"c d e\"', 'f'"));
}

TEST(CommandLine, LongListsAndWordsAreShortened) {
  CommandLine line;
  line.add(std::string(200, 'x'));
  for (int i = 0; i < 100; ++i) line.add("word");
  const std::string message = bad_input([&] { (void)line.within(10, "the kernel"); });
  EXPECT_THAT(message, AllOf(HasSubstr(std::string(60, 'x') + "..."), HasSubstr("and 93 more")));
  EXPECT_LT(message.size(), 400U);
}

TEST(CommandLine, OnlyBlanksLost) {
  CommandLine line;
  line.add("word  ");
  EXPECT_THAT(bad_input([&] { (void)line.within(4, "the kernel"); }), HasSubstr("none but blanks"));
}

}  // namespace
}  // namespace vmm::boot::test
