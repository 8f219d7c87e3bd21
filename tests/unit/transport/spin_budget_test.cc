#include "common/net/spin_budget.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace quarry {
namespace {

constexpr int64_t kMost = 1000;
constexpr int kTryEvery = 16;
constexpr int64_t kNow = 1;

TEST(SpinBudgetTest, AFewShortWaitsMakeTheNextOneStayAwake) {
  SpinBudget spin(kMost);
  for (int i = 0; i < kTryEvery; ++i) spin.Waited(kMost / 2);
  for (int i = 0; i < 10 * kTryEvery; ++i) {
    EXPECT_EQ(spin.ns(kNow), kMost);
    spin.Waited(kMost / 2);
  }
}

TEST(SpinBudgetTest, WhereWaitsAreLongOnlyEvery16thIsTried) {
  SpinBudget spin(kMost);
  int awake = 0;
  for (int i = 0; i < 100 * kTryEvery; ++i) {
    awake += spin.ns(kNow) != 0;
    spin.Waited(2 * kMost);
  }
  EXPECT_EQ(awake, 100);
}

TEST(SpinBudgetTest, APauseOfAnyLengthCountsAsOneLongWait) {
  SpinBudget spin(kMost);
  for (int i = 0; i < 100; ++i) spin.Waited(kMost / 2);
  spin.Waited(INT64_MAX);
  EXPECT_EQ(spin.ns(kNow), kMost) << "one pause among short waits changes nothing";
}

TEST(SpinBudgetTest, NoneIsNone) {
  SpinBudget spin(0);
  for (int i = 0; i < 2 * kTryEvery; ++i) {
    EXPECT_EQ(spin.ns(kNow), 0);
    spin.Waited(0);
  }
}

// Whoever gives way where others want the core has it back only when they have had their turn.
TEST(SpinBudgetTest, WhereOthersWantTheCoreItSleepsAtOnce) {
  constexpr int64_t kLong = 3'600'000'000'000;
  constexpr int kWaits = 10;
  constexpr int kEnough = 1000;
  SpinBudget spin(kLong);
  int looks = 0;
  int slept = 0;
  const auto wait = [&](int turn_of_others_us) {
    spin.Wait(
        kLong, [&] { return ++looks >= kEnough; }, [&] { ++slept; }, [&] { usleep(turn_of_others_us); });
  };
  for (int i = 0; i < kWaits; ++i) wait(/*turn_of_others_us=*/200);
  EXPECT_EQ(slept, kWaits);
  EXPECT_LT(looks, kWaits) << "each look costs another turn of the others";
  EXPECT_GE(looks, 1);
}

TEST(SpinBudgetTest, ItIsTriedMoreAndMoreRarelyWhetherOthersStillWantTheCore) {
  constexpr int64_t kTurn = 4'000'000;
  constexpr int64_t kMinute = 60'000'000'000;
  SpinBudget spin(kMost);
  int awake = 0;
  for (int64_t now = kMinute; now < 2 * kMinute; now += kTurn) {
    spin.Waited(kMost / 2);
    if (spin.ns(now) == 0) continue;
    ++awake;
    spin.GaveWay(kTurn, now);
  }
  EXPECT_LT(awake, 20);
  EXPECT_GT(awake, 8);
  int64_t now = 3 * kMinute;
  EXPECT_EQ(spin.ns(now), kMost) << "nobody has wanted it for long";
  for (int i = 0; i < 10'000; ++i) spin.GaveWay(1, now);
  spin.GaveWay(kTurn, now);
  EXPECT_EQ(spin.ns(now + kMinute / 600 - 1), 0);
  EXPECT_EQ(spin.ns(now + kMinute / 600), kMost) << "the first time costs a tenth of a second";
}

}  // namespace
}  // namespace quarry
