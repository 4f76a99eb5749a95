// SPDX-License-Identifier: Apache-2.0
#include "base/file.hpp"

#include <array>
#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error.hpp"

namespace vmm::base {
namespace {

using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "vmm-file-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory_), {}));
  }
  std::filesystem::path directory_;
};

TEST_F(FileTest, AtomicFileAppearsAtCommitOnly) {
  const auto path = directory_ / "result.json";
  {
    AtomicFile file("--stats", path);
    EXPECT_FALSE(std::filesystem::exists(path));
    file.commit("{}\n");
  }
  EXPECT_EQ(read_text(path), "{}\n");
  EXPECT_EQ(entries(), 1U) << "no temporary is left";
}

TEST_F(FileTest, AtomicFileWithoutCommitLeavesTheOldOne) {
  const auto path = directory_ / "result.json";
  std::ofstream(path) << "old";
  {
    const AtomicFile file("--stats", path);
  }
  EXPECT_EQ(read_text(path), "old");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileTest, AStreamFileLeavesAnOlderOneAloneUntilItBegins) {
  const auto path = directory_ / "console";
  std::ofstream(path) << "old";
  {
    const StreamFile file("--console", path);
    EXPECT_EQ(read_text(path), "old");
  }
  EXPECT_EQ(read_text(path), "old") << "a run that was refused";
  StreamFile file("--console", path);
  file.begin();
  EXPECT_EQ(read_text(path), "");
  EXPECT_EQ(write_all(file.fd(), "new"), 0);
  EXPECT_EQ(read_text(path), "new");
}

TEST_F(FileTest, AStreamFileThatNeverBeganIsGone) {
  {
    const StreamFile file("--console", directory_ / "console");
  }
  EXPECT_EQ(entries(), 0U);
  {
    StreamFile file("--console", directory_ / "console");
    file.begin();
  }
  EXPECT_EQ(entries(), 1U);
  EXPECT_THROW(StreamFile("--console", directory_), BadInput);
  EXPECT_THROW(StreamFile("--console", directory_ / "none/console"), BadInput);
}

TEST_F(FileTest, WriteSomeIsNotHeldByAReaderThatDoesNotRead) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  const UniqueFd writer(ends[1]);
  std::string text(1 << 20, 'x');
  EXPECT_EQ(write_some(writer.get(), text, std::chrono::milliseconds(20)), 0);
  EXPECT_GT(text.size(), 0U) << "a pipe holds 64 KiB";
  EXPECT_LT(text.size(), std::size_t{1} << 20);
  std::string little = "y";
  EXPECT_EQ(write_some(writer.get(), little, std::chrono::milliseconds(0)), 0);
  EXPECT_EQ(little, "y") << "it stays for later";
}

TEST_F(FileTest, AtomicFileIsReadableByOthers) {
  const auto path = directory_ / "result.json";
  AtomicFile file("--stats", path);
  file.commit("x");
  struct stat status{};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0644U);
}

TEST_F(FileTest, AMissingDirectoryIsBadInputBeforeTheRun) {
  try {
    const AtomicFile file("--stats", directory_ / "absent" / "x.json");
    FAIL();
  } catch (const BadInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("--stats"));
    EXPECT_THAT(error.what(), HasSubstr("absent"));
  }
}

TEST_F(FileTest, AFullDiskLeavesNothing) {
  // /dev/full fails every write with ENOSPC; it is no regular file, so it is written in place.
  AtomicFile file("--stats", "/dev/full");
  EXPECT_THROW(file.commit("x"), SystemError);
}

TEST_F(FileTest, InputMustBeARegularFile) {
  EXPECT_THROW((void)open_input("--kernel", directory_ / "absent"), BadInput);
  EXPECT_THROW((void)open_input("--kernel", directory_), BadInput);
  const auto fifo = directory_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THROW((void)open_input("--kernel", fifo), BadInput) << "and it must not block";
}

TEST_F(FileTest, AFileThatShrankIsSaidSo) {
  const auto path = directory_ / "short";
  std::ofstream(path) << "abc";
  const UniqueFd fd = open_input("--initrd", path);
  std::array<std::byte, 8> buffer{};
  try {
    read_exact(fd.get(), 0, buffer, "--initrd");
    FAIL();
  } catch (const BadInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("ends at byte 3"));
  }
}

}  // namespace
}  // namespace vmm::base
