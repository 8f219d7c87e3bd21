#include "common/net/spin_budget.h"

#include <gtest/gtest.h>

namespace quarry {
namespace {

constexpr int64_t kMost = 1000;
constexpr int kTryEvery = 16;

TEST(SpinBudgetTest, AFewShortWaitsMakeTheNextOneStayAwake) {
  SpinBudget spin(kMost);
  for (int i = 0; i < kTryEvery; ++i) spin.Waited(kMost / 2);
  for (int i = 0; i < 10 * kTryEvery; ++i) {
    EXPECT_EQ(spin.ns(), kMost);
    spin.Waited(kMost / 2);
  }
}

TEST(SpinBudgetTest, WhereWaitsAreLongOnlyEvery16thIsTried) {
  SpinBudget spin(kMost);
  int awake = 0;
  for (int i = 0; i < 100 * kTryEvery; ++i) {
    awake += spin.ns() != 0;
    spin.Waited(2 * kMost);
  }
  EXPECT_EQ(awake, 100);
}

TEST(SpinBudgetTest, APauseOfAnyLengthCountsAsOneLongWait) {
  SpinBudget spin(kMost);
  for (int i = 0; i < 100; ++i) spin.Waited(kMost / 2);
  spin.Waited(INT64_MAX);
  EXPECT_EQ(spin.ns(), kMost) << "one pause among short waits changes nothing";
}

TEST(SpinBudgetTest, NoneIsNone) {
  SpinBudget spin(0);
  for (int i = 0; i < 2 * kTryEvery; ++i) {
    EXPECT_EQ(spin.ns(), 0);
    spin.Waited(0);
  }
}

}  // namespace
}  // namespace quarry
