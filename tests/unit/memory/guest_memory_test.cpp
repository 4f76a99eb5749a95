// SPDX-License-Identifier: Apache-2.0
#include "memory/guest_memory.hpp"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "base/error.hpp"
#include "memory/layout.hpp"

namespace vmm::memory {
namespace {

using ::testing::ElementsAre;
namespace l = layout;
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

TEST(RamRegions, OneBelowTheHole) {
  EXPECT_THAT(ram_regions(256 * l::kMiB), ElementsAre(Region{0, 256 * l::kMiB, 0}));
}

TEST(RamRegions, SplitAroundTheHole) {
  EXPECT_THAT(ram_regions(3 * l::kGiB), ElementsAre(Region{0, 3 * l::kGiB, 0}));
  EXPECT_THAT(ram_regions(5 * l::kGiB),
              ElementsAre(Region{0, 3 * l::kGiB, 0}, Region{4 * l::kGiB, 2 * l::kGiB, 3 * l::kGiB}));
}

TEST(Inside, KnowsEdgesAndWrapAround) {
  const auto regions = ram_regions(5 * l::kGiB);
  EXPECT_TRUE(inside(regions, 0, 1));
  EXPECT_TRUE(inside(regions, 3 * l::kGiB - 1, 1));
  EXPECT_FALSE(inside(regions, 3 * l::kGiB - 1, 2)) << "reaches into the hole";
  EXPECT_FALSE(inside(regions, 3 * l::kGiB, 1));
  EXPECT_TRUE(inside(regions, 4 * l::kGiB, 2 * l::kGiB));
  EXPECT_FALSE(inside(regions, 4 * l::kGiB, 2 * l::kGiB + 1));
  EXPECT_FALSE(inside(regions, kMax, 2)) << "wraps to 1";
  EXPECT_FALSE(inside(regions, 1, kMax)) << "wraps to 0";
  EXPECT_FALSE(inside(regions, 4096, kMax - 4095));
}

TEST(GuestMemory, IsZeroAndOnlyReachableInside) {
  const GuestMemory memory(64 * l::kMiB);
  const auto bytes = memory.at(64 * l::kMiB - 8, 8);
  ASSERT_EQ(bytes.size(), 8U);
  for (const std::byte b : bytes) EXPECT_EQ(b, std::byte{0});
  EXPECT_TRUE(memory.at(64 * l::kMiB - 8, 9).empty());
  EXPECT_TRUE(memory.at(kMax, 1).empty());
  EXPECT_THROW(memory.write_object(64 * l::kMiB - 4, std::uint64_t{1}, "test"), base::BadInput);
  memory.write_object(4096, std::uint32_t{0x11223344}, "test");
  EXPECT_EQ(memory.at(4096, 4)[0], std::byte{0x44});
}

TEST(GuestMemory, BothSidesOfTheHoleAreDistinct) {
  const GuestMemory memory(4 * l::kGiB);
  memory.write_object(3 * l::kGiB - 4, std::uint32_t{1}, "below");
  memory.write_object(4 * l::kGiB, std::uint32_t{2}, "above");
  EXPECT_EQ(memory.at(3 * l::kGiB - 4, 1)[0], std::byte{1});
  EXPECT_EQ(memory.at(4 * l::kGiB, 1)[0], std::byte{2});
}

TEST(GuestMemory, RefusesSizesThatNoGuestCanHave) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, 184 * l::kKiB, 12599 * l::kKiB, 64 * l::kMiB - l::kPageBytes,
                                    64 * l::kMiB + 1, 512 * l::kGiB + l::kPageBytes, kMax}) {
    EXPECT_THROW(const GuestMemory memory(bytes), base::BadInput) << bytes;
  }
}

}  // namespace
}  // namespace vmm::memory
