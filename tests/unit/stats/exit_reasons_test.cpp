// SPDX-License-Identifier: Apache-2.0
#include "stats/exit_reasons.hpp"

#include <gtest/gtest.h>
#include <set>

namespace vmm::stats {
namespace {

TEST(ExitReasons, HltOfBothVendors) {
  EXPECT_EQ(classify_exit(Isa::kSvm, 0x78, 0), ExitClass::kHlt);
  EXPECT_EQ(classify_exit(Isa::kVmx, 12, 0), ExitClass::kHlt);
  EXPECT_EQ(exit_filter(Isa::kSvm, ExitClass::kHlt), "exit_reason==0x78");
  EXPECT_EQ(exit_filter(Isa::kVmx, ExitClass::kHlt), "exit_reason==0xc");
  // The other vendor's code is something else.
  EXPECT_EQ(classify_exit(Isa::kVmx, 0x78, 0), ExitClass::kOther);
}

TEST(ExitReasons, MmioIsANestedPageFaultOnAReservedBit) {
  EXPECT_EQ(classify_exit(Isa::kSvm, 0x400, 0x10000000c), ExitClass::kMmio);
  EXPECT_EQ(classify_exit(Isa::kSvm, 0x400, 0x100000004), ExitClass::kNpfOrEpt);
  EXPECT_EQ(classify_exit(Isa::kVmx, 49, 0), ExitClass::kMmio);
  EXPECT_EQ(classify_exit(Isa::kVmx, 48, 0x8), ExitClass::kNpfOrEpt);
  EXPECT_EQ(exit_filter(Isa::kSvm, ExitClass::kMmio), "exit_reason==0x400 && info1&0x8");
  EXPECT_EQ(exit_filter(Isa::kSvm, ExitClass::kNpfOrEpt), "exit_reason==0x400 && !(info1&0x8)");
}

TEST(ExitReasons, MsrIsOneCodeOrTwo) {
  EXPECT_EQ(exit_filter(Isa::kSvm, ExitClass::kMsr), "exit_reason==0x7c");
  EXPECT_EQ(exit_filter(Isa::kVmx, ExitClass::kMsr), "exit_reason==0x1f || exit_reason==0x20");
}

TEST(ExitReasons, UnknownCodesAreOther) {
  EXPECT_EQ(classify_exit(Isa::kSvm, 0xffffffff, 0), ExitClass::kOther);
  EXPECT_EQ(classify_exit(Isa::kVmx, 0x80000021, 0), ExitClass::kOther);
}

TEST(ExitReasons, EveryNamedClassHasAFilterAndAName) {
  std::set<std::string_view> names{name_of(ExitClass::kOther)};
  for (const ExitClass exit_class : kNamedExitClasses) {
    EXPECT_FALSE(exit_filter(Isa::kSvm, exit_class).empty()) << name_of(exit_class);
    EXPECT_FALSE(exit_filter(Isa::kVmx, exit_class).empty()) << name_of(exit_class);
    EXPECT_TRUE(names.insert(name_of(exit_class)).second);
  }
  EXPECT_EQ(names.size(), kExitClasses);
}

// Each code belongs to the class whose filter names it, so the filters partition what classify_exit() decodes.
TEST(ExitReasons, FiltersAndDecodingAgree) {
  for (const Isa isa : {Isa::kSvm, Isa::kVmx}) {
    for (std::uint32_t code = 0; code < 0x500; ++code) {
      const std::string term = "exit_reason==0x";
      for (const ExitClass exit_class : kNamedExitClasses) {
        const std::string filter = exit_filter(isa, exit_class);
        bool named = false;
        for (std::size_t at = filter.find(term); at != std::string::npos; at = filter.find(term, at + 1)) {
          named = named || std::stoul(filter.substr(at + term.size()), nullptr, 16) == code;
        }
        const bool decoded = classify_exit(isa, code, 0) == exit_class || classify_exit(isa, code, 0x8) == exit_class;
        EXPECT_EQ(named, decoded) << name_of(exit_class) << " " << code;
      }
    }
  }
}

TEST(ExitReasons, IsaOfCpuinfo) {
  EXPECT_EQ(isa_of_cpuinfo("processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu svm npt\n"), Isa::kSvm);
  EXPECT_EQ(isa_of_cpuinfo("processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vmx\n"), Isa::kVmx);
  EXPECT_EQ(isa_of_cpuinfo("vendor_id\t: GenuineIntel\nflags\t\t: fpu\n"), Isa::kVmx);
  EXPECT_EQ(isa_of_cpuinfo("vendor_id\t: GenuineIntel\nflags\t\t: fpu svm\n"), Isa::kSvm);
  // svm_lock or vmxish are other words; vmx_flags is another line.
  EXPECT_EQ(isa_of_cpuinfo("vendor_id\t: AuthenticAMD\nflags\t\t: svm_lock vmxish\nvmx flags\t: vnmi\n"), Isa::kSvm);
  EXPECT_EQ(isa_of_cpuinfo(""), Isa::kSvm);
}

}  // namespace
}  // namespace vmm::stats
