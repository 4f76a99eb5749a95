// SPDX-License-Identifier: Apache-2.0
#include "experiment/run.hpp"

#include <gtest/gtest.h>
#include <signal.h>

namespace vmm::experiment {
namespace {

using base::ExitStatus;
using machine::Stop;
using Kind = Stop::Kind;

ExitStatus status(Kind kind, std::uint32_t value = 0, std::optional<int> workload = std::nullopt,
                  bool expected = false) {
  return exit_status_of(Stop{kind, "", value}, workload, expected);
}

TEST(ExitStatusOf, TellsWhoIsAtFault) {
  EXPECT_EQ(status(Kind::kCrashed), ExitStatus::kGuestCrashed);
  EXPECT_EQ(status(Kind::kWedged), ExitStatus::kGuestCrashed);
  EXPECT_EQ(status(Kind::kMisbehaved), ExitStatus::kGuestCrashed);
  EXPECT_EQ(status(Kind::kTimeout), ExitStatus::kTimeout);
  EXPECT_EQ(static_cast<int>(status(Kind::kInterrupted, SIGTERM)), 128 + SIGTERM);
  // A crash is a crash, whatever the workload said before.
  EXPECT_EQ(status(Kind::kCrashed, 0, 0, true), ExitStatus::kGuestCrashed);
}

TEST(ExitStatusOf, APayloadsValue) {
  EXPECT_EQ(status(Kind::kPayloadExit, 0), ExitStatus::kOk);
  EXPECT_EQ(status(Kind::kPayloadExit, 1), ExitStatus::kWorkloadFailed);
  EXPECT_EQ(static_cast<int>(status(Kind::kPayloadExit, 7)), 7);
  for (const std::uint32_t taken : {2U, 3U, 4U, 124U, 130U}) {
    EXPECT_EQ(status(Kind::kPayloadExit, taken), ExitStatus::kWorkloadFailed) << taken << " says something else";
  }
  EXPECT_EQ(status(Kind::kPayloadExit, 256), ExitStatus::kWorkloadFailed) << "not taken modulo 256";
}

TEST(ExitStatusOf, AWorkloadMustHaveSucceeded) {
  EXPECT_EQ(status(Kind::kPoweredOff, 0, 0, true), ExitStatus::kOk);
  EXPECT_EQ(status(Kind::kPoweredOff, 0, 3, true), ExitStatus::kWorkloadFailed);
  EXPECT_EQ(status(Kind::kPoweredOff, 0, std::nullopt, true), ExitStatus::kWorkloadFailed) << "no result is no success";
  EXPECT_EQ(status(Kind::kPoweredOff), ExitStatus::kOk) << "a kernel of the user's own, without the agent";
}

}  // namespace
}  // namespace vmm::experiment
