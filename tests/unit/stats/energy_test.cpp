// SPDX-License-Identifier: Apache-2.0
#include "stats/energy.hpp"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

namespace vmm::stats {
namespace {

// A powercap class of its own.
class Energy : public testing::Test {
 protected:
  Energy() : directory_(testing::TempDir() + "powercap-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(directory_);
  }
  ~Energy() override { std::filesystem::remove_all(directory_); }

  void zone(const std::string& zone, const std::string& name, const std::string& energy_uj) {
    std::filesystem::create_directories(directory_ / zone);
    std::ofstream(directory_ / zone / "name") << name << "\n";
    std::ofstream(directory_ / zone / "energy_uj") << energy_uj << "\n";
    std::ofstream(directory_ / zone / "max_energy_range_uj") << "1000\n";
  }
  EnergyReading read() const { return read_energy(directory_); }

  std::filesystem::path directory_;
};

TEST_F(Energy, PackagesAddUpAndTheirPartsDoNotCountTwice) {
  zone("intel-rapl:0", "package-0", "100");
  zone("intel-rapl:1", "package-1", "200");
  zone("intel-rapl:0:0", "core", "50");
  zone("intel-rapl:2", "psys", "999");
  const EnergyReading before = read();
  EXPECT_EQ(before.packages.size(), 2u);
  zone("intel-rapl:0", "package-0", "130");
  zone("intel-rapl:1", "package-1", "207");
  zone("intel-rapl:0:0", "core", "70");
  const Value energy = energy_between(before, read());
  EXPECT_EQ(energy.integer(), 37u);
  EXPECT_EQ(name_of(energy.unit()), "uJ");
  EXPECT_EQ(name_of(energy.source()), "powercap");
}

TEST_F(Energy, ACounterThatWrapsGoesOn) {
  zone("intel-rapl:0", "package-0", "990");
  const EnergyReading before = read();
  zone("intel-rapl:0", "package-0", "9");
  EXPECT_EQ(energy_between(before, read()).integer(), 20u);
}

TEST_F(Energy, UnknownIsNullWithTheReason) {
  const EnergyReading none = read();
  EXPECT_FALSE(energy_between(none, none).known());
  EXPECT_NE(energy_between(none, none).reason().find("no RAPL"), std::string::npos);
  EXPECT_FALSE(read_energy(directory_ / "missing").reason.empty());

  zone("intel-rapl:0", "package-0", "10");
  const EnergyReading one = read();
  EXPECT_FALSE(energy_between(none, one).known());
  zone("intel-rapl:1", "package-1", "10");
  EXPECT_FALSE(energy_between(one, read()).known());
  zone("intel-rapl:1", "package-1", "1001");
  EXPECT_FALSE(energy_between(read(), read()).known());
  zone("intel-rapl:1", "package-1", "ten");
  EXPECT_NE(read().reason.find("holds no number"), std::string::npos);
  std::filesystem::remove(directory_ / "intel-rapl:1" / "energy_uj");
  EXPECT_NE(read().reason.find("energy_uj"), std::string::npos);
}

}  // namespace
}  // namespace vmm::stats
