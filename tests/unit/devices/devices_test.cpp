// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "devices/agent_channel.hpp"
#include "devices/bus.hpp"
#include "devices/power.hpp"
#include "devices/serial.hpp"

namespace vmm::devices {
namespace {

using ::testing::ElementsAre;

std::uint64_t read(Device& device, std::uint64_t offset, std::size_t size = 1) {
  std::array<std::byte, 8> data{};
  fill_ones(data);
  device.read(offset, std::span(data).first(size));
  return load_little_endian(std::span(data).first(size));
}

void write(Device& device, std::uint64_t offset, std::uint64_t value, std::size_t size = 1) {
  std::array<std::byte, 8> data{};
  store_little_endian(std::span(data).first(size), value);
  device.write(offset, std::span(data).first(size));
}

// Remembers what it was asked.
class Probe final : public Device {
 public:
  void read(std::uint64_t offset, std::span<std::byte> data) override {
    offsets.push_back(offset);
    store_little_endian(data, 0x5a);
  }
  void write(std::uint64_t offset, std::span<const std::byte> data) override {
    offsets.push_back(offset);
    written.push_back(load_little_endian(data));
  }
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint64_t> written;
};

TEST(PortBus, GivesOffsetsAndReadsOnesElsewhere) {
  PortBus bus;
  auto& probe = static_cast<Probe&>(bus.add(0x3f8, 8, std::make_unique<Probe>()));
  std::array<std::byte, 2> data{};
  bus.read(0x3fa, data);
  EXPECT_EQ(load_little_endian(data), 0x5aU);
  bus.read(0x400, data);
  EXPECT_EQ(load_little_endian(data), 0xffffU);
  bus.read(0x3f7, data);
  EXPECT_EQ(load_little_endian(data), 0xffffU);
  bus.write(0x3ff, std::span(data).first(1));
  EXPECT_THAT(probe.offsets, ElementsAre(2U, 7U));
}

TEST(PortBus, RefusesOverlapAndTheEndOfTheSpace) {
  PortBus bus;
  bus.add(0x10, 4, std::make_unique<Probe>());
  EXPECT_THROW(bus.add(0x13, 1, std::make_unique<Probe>()), std::logic_error);
  EXPECT_THROW(bus.add(0xffff, 2, std::make_unique<Probe>()), std::logic_error);
  EXPECT_NO_THROW(bus.add(0xffff, 1, std::make_unique<Probe>()));
}

TEST(MmioBus, FindsOnlyWholeAccesses) {
  MmioBus bus;
  auto& probe = static_cast<Probe&>(bus.add(0x1000, 0x10, std::make_unique<Probe>()));
  EXPECT_THROW(bus.add(0x100f, 1, std::make_unique<Probe>()), std::logic_error);
  EXPECT_THROW(bus.add(~0ULL, 2, std::make_unique<Probe>()), std::logic_error);
  std::array<std::byte, 4> data{};
  bus.read(0x100c, data);
  bus.read(0x100d, data);  // reaches beyond the end: nobody's
  EXPECT_EQ(load_little_endian(data), 0xffffffffU);
  bus.read(0xfff, data);
  EXPECT_THAT(probe.offsets, ElementsAre(0xcU));
}

class SerialTest : public ::testing::Test {
 protected:
  std::string sent_;
  std::vector<bool> levels_;
  Serial serial_{[this](std::uint8_t byte) { sent_ += static_cast<char>(byte); },
                 [this](bool level) { levels_.push_back(level); }};
};

TEST_F(SerialTest, SendsBytesAndIsAlwaysReady) {
  write(serial_, 0, 'h');
  write(serial_, 0, 'i');
  EXPECT_EQ(sent_, "hi");
  EXPECT_EQ(read(serial_, 5) & 0x60, 0x60U);
}

TEST_F(SerialTest, DivisorIsNotData) {
  write(serial_, 3, 0x80);
  write(serial_, 0, 0x01);
  write(serial_, 1, 0x02);
  EXPECT_EQ(read(serial_, 0), 0x01U);
  EXPECT_EQ(read(serial_, 1), 0x02U);
  write(serial_, 3, 0x03);
  EXPECT_EQ(sent_, "");
  EXPECT_EQ(read(serial_, 1), 0x00U) << "the interrupt enable register kept its value";
}

TEST_F(SerialTest, TransmitInterruptRisesWhenEnabledAndFallsWhenIdentified) {
  write(serial_, 1, 0x02);
  EXPECT_THAT(levels_, ElementsAre(true));
  EXPECT_EQ(read(serial_, 2) & 0x0f, 0x02U);
  EXPECT_THAT(levels_, ElementsAre(true, false));
  EXPECT_EQ(read(serial_, 2) & 0x0f, 0x01U) << "none pending";
  write(serial_, 0, 'x');
  EXPECT_THAT(levels_, ElementsAre(true, false, true));
}

TEST_F(SerialTest, ReceivesUpToItsBufferAndSaysHowMuch) {
  write(serial_, 1, 0x01);
  EXPECT_EQ(serial_.receive(std::string(100, 'a')), 64U);
  EXPECT_EQ(serial_.receive("b"), 0U);
  EXPECT_EQ(read(serial_, 5) & 1, 1U);
  EXPECT_EQ(read(serial_, 2) & 0x0f, 0x04U);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(read(serial_, 0), std::uint64_t{'a'});
  EXPECT_EQ(read(serial_, 5) & 1, 0U);
  EXPECT_FALSE(levels_.back());
  EXPECT_EQ(read(serial_, 0), 0U) << "an empty receiver reads as 0";
}

TEST_F(SerialTest, LoopModeWiresOutputsToInputs) {
  write(serial_, 4, 0x1a);  // loop, RTS, OUT2: how Linux' 8250 driver probes
  EXPECT_EQ(read(serial_, 6) & 0xf0, 0x90U);
  write(serial_, 0, 'z');
  EXPECT_EQ(sent_, "");
  EXPECT_EQ(read(serial_, 0), std::uint64_t{'z'});
}

TEST(Power, OnlySleepTypeS5WithSleepEnableTurnsOff) {
  int off = 0;
  AcpiPowerManagement pm(5, [&off] { ++off; });
  EXPECT_EQ(read(pm, 4, 2) & 1, 1U) << "SCI_EN: already in ACPI mode";
  write(pm, 4, 5U << 10, 2);
  write(pm, 4, (3U << 10) | (1U << 13), 2);
  EXPECT_EQ(off, 0);
  write(pm, 4, (5U << 10) | (1U << 13), 2);
  EXPECT_EQ(off, 1);
  EXPECT_EQ(read(pm, 4, 2) & (1U << 13), 0U) << "SLP_EN reads as zero";
  write(pm, 2, 0x0120, 2);
  EXPECT_EQ(read(pm, 2, 2), 0x0120U);
  EXPECT_EQ(read(pm, 0, 2), 0U);
}

TEST(Power, ResetNeedsItsValue) {
  int resets = 0;
  ResetPort port(6, 0, [&resets] { ++resets; });
  write(port, 0, 2);
  EXPECT_EQ(resets, 0);
  write(port, 0, 6);
  EXPECT_EQ(resets, 1);
  EXPECT_EQ(read(port, 0), 0U);
}

class ChannelTest : public ::testing::Test {
 protected:
  void say(std::string_view text) {
    for (const char c : text) write(channel_, 0, static_cast<std::uint8_t>(c));
  }
  std::string reply() {
    std::string text;
    while (read(channel_, 4, 4) != 0) text += static_cast<char>(read(channel_, 0));
    return text;
  }
  std::vector<std::pair<std::string, bool>> lines_;
  AgentChannel channel_{[this](std::string_view line, bool complete) {
    lines_.emplace_back(line, complete);
    return std::string("ok\n");
  }};
};

TEST_F(ChannelTest, ALineIsHandledAtItsNewline) {
  EXPECT_EQ(read(channel_, 8, 4), 0x314D4D56U);
  say("{\"a\":1}");
  EXPECT_TRUE(lines_.empty());
  say("\n");
  EXPECT_THAT(lines_, ElementsAre(std::pair(std::string("{\"a\":1}"), true)));
  EXPECT_EQ(reply(), "ok\n");
  EXPECT_EQ(read(channel_, 0), 0U) << "nothing left";
}

TEST_F(ChannelTest, FourBytesAtOnceAreFourBytes) {
  write(channel_, 0, 0x0a636261, 4);  // "abc\n"
  write(channel_, 0, 0x0a64, 2);      // "d\n"
  EXPECT_THAT(lines_, ElementsAre(std::pair(std::string("abc"), true), std::pair(std::string("d"), true)));
}

TEST_F(ChannelTest, AnEndlessLineIsCutAndSaidSo) {
  say(std::string(AgentChannel::kLineLimitBytes + 10, 'x'));
  say("\n");
  ASSERT_EQ(lines_.size(), 1U);
  EXPECT_EQ(lines_[0].first.size(), AgentChannel::kLineLimitBytes);
  EXPECT_FALSE(lines_[0].second);
  say("y\n");
  EXPECT_EQ(lines_[1], std::pair(std::string("y"), true));
}

}  // namespace
}  // namespace vmm::devices
