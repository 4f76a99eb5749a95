// SPDX-License-Identifier: Apache-2.0
#include "stats/tracepoints.hpp"

#include <cerrno>
#include <fstream>
#include <gtest/gtest.h>

#include "stats/perf_counter.hpp"
#include "trace_events.hpp"

namespace vmm::stats {
namespace {

TEST(Tracepoints, ParsesIdAndFields) {
  const auto event = parse_event_format("kvm", test::kvm_exit_format());
  ASSERT_TRUE(event);
  EXPECT_EQ(event->name, "kvm_exit");
  EXPECT_EQ(event->id, 2001u);
  EXPECT_EQ(event->fields.at("exit_reason"), (TraceField{8, 4, false}));
  EXPECT_EQ(event->fields.at("info1"), (TraceField{32, 8, false}));
  EXPECT_EQ(event->fields.at("common_type"), (TraceField{0, 2, false}));
  EXPECT_TRUE(event->fields.at("common_pid").is_signed);
  EXPECT_FALSE(event->has_field("vec"));
}

TEST(Tracepoints, OddTextsGiveNothing) {
  EXPECT_FALSE(parse_event_format("kvm", ""));
  EXPECT_FALSE(parse_event_format("kvm", "print fmt: \"x\""));
  EXPECT_FALSE(parse_event_format("kvm", "hello"));
  EXPECT_FALSE(parse_event_format("kvm", std::string(1000, '\n')));
  EXPECT_FALSE(parse_event_format("kvm", std::string(1 << 20, 'x')));
  EXPECT_FALSE(parse_event_format("kvm", "name: a\nID: x\nformat:\n"));
}

TEST(Tracepoints, TruncatedTextsDoNotCrash) {
  const std::string text = test::kvm_exit_format();
  for (std::size_t length = 0; length < text.size(); ++length) {
    const auto event = parse_event_format("kvm", text.substr(0, length));
    if (event) {
      EXPECT_EQ(event->name, "kvm_exit");
    }
  }
}

TEST(Tracepoints, UnavailableSaysWhyAndWhatToDo) {
  const auto none = Tracepoints::unavailable("tracefs is not mounted", "mount -t tracefs nodev /sys/kernel/tracing");
  EXPECT_FALSE(none.usable());
  EXPECT_EQ(none.reason(), "tracefs is not mounted: mount -t tracefs nodev /sys/kernel/tracing");
  EXPECT_EQ(none.find("kvm_exit"), nullptr);
  EXPECT_FALSE(Tracepoints::unavailable("", "").usable());
}

TEST(Tracepoints, ProbeNeverThrows) {
  const auto here = Tracepoints::probe();
  if (!here.usable()) {
    EXPECT_FALSE(here.problem().empty());
    EXPECT_FALSE(here.remedy().empty());
  } else {
    EXPECT_NE(here.find("kvm_exit"), nullptr);
  }
}

TEST(Tracepoints, PerfErrorsSayWhatWouldWork) {
  const std::string denied = explain_perf_error(EACCES, 3);
  EXPECT_NE(denied.find("CAP_PERFMON"), std::string::npos);
  EXPECT_NE(denied.find("perf_event_paranoid is 3"), std::string::npos);
  EXPECT_NE(explain_perf_error(EPERM, std::nullopt).find("unreadable"), std::string::npos);
  EXPECT_NE(explain_perf_error(EMFILE, 1).find("ulimit -n"), std::string::npos);
  EXPECT_NE(explain_perf_error(ENOSYS, 1).find("CONFIG_PERF_EVENTS"), std::string::npos);
}

class Modules : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) / ("modules-" + std::to_string(::getpid()));
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void set(const std::string& parameter, const std::string& value) {
    const auto path = root_ / parameter;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << value << "\n";
  }
  std::filesystem::path root_;
};

TEST_F(Modules, NothingThereIsNone) {
  EXPECT_EQ(detect_apic_virtualization(root_), ApicVirtualization::kNone);
}
TEST_F(Modules, Avic) {
  set("kvm_amd/parameters/avic", "N");
  EXPECT_EQ(detect_apic_virtualization(root_), ApicVirtualization::kNone);
  set("kvm_amd/parameters/avic", "Y");
  EXPECT_EQ(detect_apic_virtualization(root_), ApicVirtualization::kIpiVirtualized);
}
TEST_F(Modules, Intel) {
  set("kvm_intel/parameters/enable_apicv", "Y");
  set("kvm_intel/parameters/enable_ipiv", "N");
  EXPECT_EQ(detect_apic_virtualization(root_), ApicVirtualization::kApicv);
  set("kvm_intel/parameters/enable_ipiv", "Y");
  EXPECT_EQ(detect_apic_virtualization(root_), ApicVirtualization::kIpiVirtualized);
  set("kvm_intel/parameters/enable_apicv", "N");
  EXPECT_EQ(detect_apic_virtualization(root_), ApicVirtualization::kNone);
}

TEST(PerfCounter, ReadingIsNullWhenNotAlwaysScheduled) {
  EXPECT_EQ(interpret_perf_reading(7, 100, 100), Value::count(7, Source::kTracepoint));
  EXPECT_EQ(interpret_perf_reading(0, 0, 0), Value::count(0, Source::kTracepoint));
  EXPECT_FALSE(interpret_perf_reading(7, 100, 99).known());
}

TEST(PerfCounter, RefusalIsTheReason) {
  const PerfCounter none("no tracefs");
  EXPECT_FALSE(none.counting());
  EXPECT_EQ(none.read().reason(), "no tracefs");
  // No kernel has this tracepoint.
  const auto wrong = PerfCounter::open({.event_id = 0x7fffffff, .filter = {}, .thread = 0, .inherit = false});
  EXPECT_FALSE(wrong.counting());
  EXPECT_FALSE(wrong.read().known());
  EXPECT_FALSE(wrong.read().reason().empty());
}

}  // namespace
}  // namespace vmm::stats
