// SPDX-License-Identifier: Apache-2.0
// The memory map, and the initrd's place in it.
#include "boot/e820.hpp"
#include "boot/initrd.hpp"
#include "images.hpp"
#include "memory/guest_memory.hpp"
#include "memory/layout.hpp"

namespace vmm::boot::test {
namespace {

namespace layout = memory::layout;
using layout::kGiB;
using layout::kMiB;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr E820Entry kEbda{0x9fc00, 0x400, E820Type::kReserved};
constexpr E820Entry kAcpi{0xe0000, 0x20000, E820Type::kReserved};
constexpr E820Entry kKvm{0xfffbc000, 0x4000, E820Type::kReserved};

std::vector<E820Entry> map_of(std::uint64_t memory_bytes) {
  return e820_map(memory::ram_regions(memory_bytes));
}

TEST(E820, BelowTheHole) {
  EXPECT_THAT(map_of(256 * kMiB), ElementsAre(E820Entry{0, 0x9fc00, E820Type::kRam}, kEbda, kAcpi,
                                              E820Entry{0x100000, 255 * kMiB, E820Type::kRam}, kKvm));
}

TEST(E820, UpToTheHole) {
  EXPECT_THAT(map_of(3 * kGiB), ElementsAre(E820Entry{0, 0x9fc00, E820Type::kRam}, kEbda, kAcpi,
                                            E820Entry{0x100000, 3 * kGiB - kMiB, E820Type::kRam}, kKvm));
}

TEST(E820, OnePageAboveTheHole) {
  EXPECT_EQ(map_of(3 * kGiB + 4096).back(), (E820Entry{4 * kGiB, 4096, E820Type::kRam}));
}

TEST(E820, AroundTheHole) {
  EXPECT_THAT(map_of(8 * kGiB), ElementsAre(E820Entry{0, 0x9fc00, E820Type::kRam}, kEbda, kAcpi,
                                            E820Entry{0x100000, 3 * kGiB - kMiB, E820Type::kRam}, kKvm,
                                            E820Entry{4 * kGiB, 5 * kGiB, E820Type::kRam}));
}

TEST(E820, IsAscendingAndDisjointForOddSizes) {
  for (const std::uint64_t bytes : {64 * kMiB, 64 * kMiB + 4096, 12599 * layout::kKiB + 52 * kMiB + 1024,
                                    3 * kGiB - 4096, 3 * kGiB + 12 * layout::kKiB, 512 * kGiB}) {
    const std::vector<E820Entry> map = map_of(bytes);
    std::uint64_t ram = 0;
    for (std::size_t i = 0; i < map.size(); ++i) {
      EXPECT_GT(map[i].bytes, 0U);
      if (i > 0) {
        EXPECT_LE(map[i - 1].address + map[i - 1].bytes, map[i].address);
      }
      if (map[i].type == E820Type::kRam) ram += map[i].bytes;
    }
    // All of RAM but what a PC has between the EBDA and 1 MiB.
    EXPECT_EQ(ram, bytes - (kMiB - 0x9fc00));
  }
}

TEST(E820, SizesBelowOneMib) {
  EXPECT_THAT(map_of(184 * layout::kKiB),
              ElementsAre(E820Entry{0, 184 * layout::kKiB, E820Type::kRam}, kEbda, kAcpi, kKvm));
  EXPECT_THAT(map_of(kMiB), ElementsAre(E820Entry{0, 0x9fc00, E820Type::kRam}, kEbda, kAcpi, kKvm));
  EXPECT_THAT(map_of(0), ElementsAre(kEbda, kAcpi, kKvm));
}

TEST(E820, UsableIsRamOfOneEntry) {
  const std::vector<E820Entry> map = map_of(256 * kMiB);
  EXPECT_TRUE(usable(map, 0, 0x9fc00));
  EXPECT_FALSE(usable(map, 0, 0x9fc01));
  EXPECT_TRUE(usable(map, 0x100000, 255 * kMiB));
  EXPECT_FALSE(usable(map, 0x100000, 255 * kMiB + 1));
  EXPECT_FALSE(usable(map, 0xfffff, 1));
  EXPECT_FALSE(usable(map, 0x9fc00, 1));
  EXPECT_FALSE(usable(map, 0x100000, ~std::uint64_t{0}));
  EXPECT_FALSE(usable(map, ~std::uint64_t{0}, 2));
}

// ---- initrd ----

KernelImage kernel_at(std::uint64_t address, std::uint64_t bytes, std::uint64_t initrd_addr_max = 0x7fffffff) {
  KernelImage image;
  image.segments = {{0, bytes, address, bytes}};
  image.initrd_addr_max = initrd_addr_max;
  return image;
}

TEST(Initrd, GoesToTheEndOfRam) {
  const auto place = place_initrd(5 * kMiB, kernel_at(0x1000000, 16 * kMiB), map_of(256 * kMiB));
  EXPECT_EQ(place, (InitrdPlace{251 * kMiB, 5 * kMiB}));
}

TEST(Initrd, IsPageAligned) {
  const auto place = place_initrd(4097, kernel_at(0x1000000, 16 * kMiB), map_of(256 * kMiB));
  EXPECT_EQ(place, (InitrdPlace{256 * kMiB - 8192, 4097}));
}

TEST(Initrd, StaysBelowInitrdAddrMax) {
  // The last byte may have the address initrd_addr_max, and no higher.
  const auto map = map_of(4 * kGiB);
  EXPECT_EQ(place_initrd(4096, kernel_at(0x1000000, kMiB, 0x7fffffff), map).address, 0x7ffff000U);
  EXPECT_EQ(place_initrd(4096, kernel_at(0x1000000, kMiB, 0x7ffffffe), map).address, 0x7fffe000U);
  EXPECT_EQ(place_initrd(4096, kernel_at(0x1000000, kMiB, 0x37ffffff), map).address, 0x37fff000U);
}

TEST(Initrd, StaysBelowTheHole) {
  const auto place = place_initrd(4096, kernel_at(0x1000000, kMiB, 0xffffffff), map_of(8 * kGiB));
  EXPECT_EQ(place.address, 3 * kGiB - 4096);
  EXPECT_EQ(place_initrd(4096, kernel_at(0x1000000, kMiB, ~std::uint64_t{0}), map_of(8 * kGiB)).address,
            3 * kGiB - 4096);
}

TEST(Initrd, FillsExactlyWhatTheKernelLeaves) {
  const auto map = map_of(64 * kMiB);
  const KernelImage kernel = kernel_at(0x1000000, 16 * kMiB);  // to 32 MiB
  EXPECT_EQ(place_initrd(32 * kMiB, kernel, map).address, 32 * kMiB);
  // Below the kernel there are 15 MiB: not enough for one byte more.
  const std::string message = bad_input([&] { (void)place_initrd(32 * kMiB + 1, kernel, map); });
  EXPECT_THAT(message, AllOf(HasSubstr("--initrd: 33554433 bytes do not fit"), HasSubstr("up to 0x2000000"),
                             HasSubstr("0x7fffffff (initrd_addr_max)"), HasSubstr("ends at 0x4000000"),
                             HasSubstr("larger --memory would work")));
}

TEST(Initrd, UsesTheRoomBelowAHighKernel) {
  EXPECT_EQ(place_initrd(8 * kMiB, kernel_at(0x1000000, 48 * kMiB), map_of(64 * kMiB)).address, 8 * kMiB);
}

TEST(Initrd, UsesTheRoomBetweenSegments) {
  KernelImage kernel = kernel_at(0x1000000, 16 * kMiB);
  kernel.segments.push_back({0, kMiB, 60 * kMiB, 4 * kMiB});
  EXPECT_EQ(place_initrd(8 * kMiB, kernel, map_of(64 * kMiB)).address, 52 * kMiB);
  EXPECT_EQ(place_initrd(15 * kMiB, kernel, map_of(64 * kMiB)).address, 45 * kMiB);
  EXPECT_FALSE(bad_input([&] { (void)place_initrd(29 * kMiB, kernel, map_of(64 * kMiB)); }).empty());
}

TEST(Initrd, AboveInitrdAddrMaxMoreMemoryDoesNotHelp) {
  const std::string message =
      bad_input([&] { (void)place_initrd(2 * kGiB, kernel_at(0x1000000, 16 * kMiB), map_of(4 * kGiB)); });
  EXPECT_THAT(message, AllOf(HasSubstr("2147483648 bytes"), HasSubstr("initrd_addr_max"),
                             HasSubstr("a smaller initrd would work"), Not(HasSubstr("--memory"))));
}

TEST(Initrd, SizesThatWouldWrapAreRefused) {
  for (const std::uint64_t bytes : {~std::uint64_t{0}, std::uint64_t{1} << 63, 8 * kGiB}) {
    EXPECT_THAT(bad_input([&] { (void)place_initrd(bytes, kernel_at(0x1000000, kMiB), map_of(8 * kGiB)); }),
                HasSubstr("do not fit"));
  }
}

TEST(Initrd, EmptyFileIsRefused) {
  EXPECT_THAT(bad_input([&] { (void)place_initrd(0, kernel_at(0x1000000, kMiB), map_of(64 * kMiB)); }),
              AllOf(HasSubstr("--initrd"), HasSubstr("empty"), HasSubstr("leave the option out")));
}

TEST(Initrd, KernelWithATinyLimitIsRefused) {
  for (const std::uint64_t limit : {0ULL, 0xfffffULL, 0x100ffeULL}) {
    EXPECT_THAT(bad_input([&] { (void)place_initrd(4096, kernel_at(0x1000000, kMiB, limit), map_of(64 * kMiB)); }),
                HasSubstr("initrd_addr_max"))
        << limit;
  }
  EXPECT_EQ(place_initrd(4096, kernel_at(0x1000000, kMiB, 0x100fff), map_of(64 * kMiB)).address, 0x100000U);
}

}  // namespace
}  // namespace vmm::boot::test
