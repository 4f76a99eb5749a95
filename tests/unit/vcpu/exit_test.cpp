// SPDX-License-Identifier: Apache-2.0
#include "vcpu/exit.hpp"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace vmm::vcpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A kvm_run page as KVM would map it: the structure, and data behind it.
class Page {
 public:
  Page() : bytes_(kBytes / sizeof(std::uint64_t)) {}
  kvm_run& run() { return *reinterpret_cast<kvm_run*>(bytes_.data()); }
  std::byte* data() { return reinterpret_cast<std::byte*>(bytes_.data()); }
  static constexpr std::size_t kBytes = 12288;

 private:
  std::vector<std::uint64_t> bytes_;
};

class Recorder final : public devices::Device {
 public:
  void read(std::uint64_t offset, std::span<std::byte> data) override {
    devices::store_little_endian(data, 0x10 + offset);
    ++reads;
  }
  void write(std::uint64_t, std::span<const std::byte> data) override {
    written.push_back(devices::load_little_endian(data));
  }
  int reads = 0;
  std::vector<std::uint64_t> written;
};

void set_io(Page& page, std::uint8_t direction, std::uint8_t size, std::uint16_t port, std::uint32_t count,
            std::uint64_t offset) {
  page.run().exit_reason = KVM_EXIT_IO;
  page.run().io.direction = direction;
  page.run().io.size = size;
  page.run().io.port = port;
  page.run().io.count = count;
  page.run().io.data_offset = offset;
}

class ExitTest : public ::testing::Test {
 protected:
  ExitTest() {
    recorder_ = static_cast<Recorder*>(&buses_.ports.add(0x100, 8, std::make_unique<Recorder>()));
    mmio_ = static_cast<Recorder*>(&buses_.mmio.add(0xd0000000, 0x1000, std::make_unique<Recorder>()));
  }
  Outcome serve() { return dispatch(decode_exit(page_.run(), Page::kBytes), buses_); }
  Page page_;
  Buses buses_;
  Recorder* recorder_;
  Recorder* mmio_;
};

TEST_F(ExitTest, AStringOfElementsIsAsManyAccesses) {
  set_io(page_, KVM_EXIT_IO_OUT, 2, 0x100, 3, 4096);
  const std::uint16_t words[3] = {1, 2, 3};
  std::memcpy(page_.data() + 4096, words, sizeof words);
  EXPECT_TRUE(std::holds_alternative<Continue>(serve()));
  EXPECT_THAT(recorder_->written, ElementsAre(1U, 2U, 3U));
}

TEST_F(ExitTest, AReadFillsThePage) {
  set_io(page_, KVM_EXIT_IO_IN, 1, 0x102, 2, 4096);
  EXPECT_TRUE(std::holds_alternative<Continue>(serve()));
  EXPECT_EQ(recorder_->reads, 2);
  EXPECT_EQ(page_.data()[4096], std::byte{0x12});
}

TEST_F(ExitTest, AnEmptyBusReadsOnes) {
  set_io(page_, KVM_EXIT_IO_IN, 4, 0x70, 1, 4096);
  serve();
  EXPECT_EQ(page_.data()[4099], std::byte{0xff});
}

TEST_F(ExitTest, DataOutsideThePageIsNotTouched) {
  set_io(page_, KVM_EXIT_IO_OUT, 1, 0x100, 1, Page::kBytes);
  EXPECT_TRUE(std::holds_alternative<Crash>(serve()));
  set_io(page_, KVM_EXIT_IO_OUT, 4, 0x100, 0xffffffff, 4096);
  EXPECT_TRUE(std::holds_alternative<Crash>(serve()));
  set_io(page_, KVM_EXIT_IO_OUT, 1, 0x100, 1, ~0ULL);
  EXPECT_TRUE(std::holds_alternative<Crash>(serve()));
  set_io(page_, KVM_EXIT_IO_OUT, 3, 0x100, 1, 4096);
  EXPECT_TRUE(std::holds_alternative<Crash>(serve()));
  EXPECT_TRUE(recorder_->written.empty());
}

TEST_F(ExitTest, MmioIsServedAndItsLengthChecked) {
  page_.run().exit_reason = KVM_EXIT_MMIO;
  page_.run().mmio.phys_addr = 0xd0000010;
  page_.run().mmio.len = 4;
  page_.run().mmio.is_write = 1;
  page_.run().mmio.data[0] = 7;
  EXPECT_TRUE(std::holds_alternative<Continue>(serve()));
  EXPECT_THAT(mmio_->written, ElementsAre(7U));
  page_.run().mmio.len = 9;
  EXPECT_TRUE(std::holds_alternative<Crash>(serve()));
}

TEST_F(ExitTest, CrashesSayWhatKvmSaid) {
  page_.run().exit_reason = KVM_EXIT_SHUTDOWN;
  EXPECT_EQ(std::get<Crash>(serve()).kind, Crash::Kind::kTripleFault);
  page_.run().exit_reason = KVM_EXIT_INTERNAL_ERROR;
  page_.run().internal.suberror = KVM_INTERNAL_ERROR_EMULATION;
  page_.run().internal.ndata = 1000;  // more than there is
  page_.run().internal.data[0] = 0xabc;
  const Crash crash = std::get<Crash>(serve());
  EXPECT_EQ(crash.kind, Crash::Kind::kInternalError);
  EXPECT_THAT(crash.what, HasSubstr("emulation failure"));
  EXPECT_THAT(crash.what, HasSubstr("0xabc"));
  page_.run().exit_reason = KVM_EXIT_FAIL_ENTRY;
  page_.run().fail_entry.hardware_entry_failure_reason = 0x80000021;
  EXPECT_THAT(std::get<Crash>(serve()).what, HasSubstr("0x80000021"));
  page_.run().exit_reason = 4711;
  EXPECT_THAT(std::get<Crash>(serve()).what, HasSubstr("4711"));
  page_.run().exit_reason = KVM_EXIT_HLT;
  EXPECT_TRUE(std::holds_alternative<Halted>(serve()));
}

}  // namespace
}  // namespace vmm::vcpu
