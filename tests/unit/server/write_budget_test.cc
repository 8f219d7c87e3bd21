#include "server/ssd/write_budget.h"

#include <gtest/gtest.h>

namespace quarry::server {
namespace {

constexpr uint64_t kDay = 86'400'000;  // bytes a day: one a millisecond
using Admits = WriteBudget::Admits;

TEST(WriteBudgetTest, WithoutABoundAllIsAdmitted) {
  ManualClock clock;
  WriteBudget budget(0, 0, &clock);
  budget.Spend(uint64_t{1} << 50);
  EXPECT_EQ(budget.Now(), Admits::kAll);
}

TEST(WriteBudgetTest, TheBurstIsThereAtFirstAndIsSpentInTwoSteps) {
  ManualClock clock;
  WriteBudget budget(kDay, 1000, &clock);
  EXPECT_EQ(budget.Now(), Admits::kAll);
  budget.Spend(500);
  EXPECT_EQ(budget.Now(), Admits::kAll);
  budget.Spend(1);
  EXPECT_EQ(budget.Now(), Admits::kUsed);
  budget.Spend(499);
  EXPECT_EQ(budget.Now(), Admits::kNone);
}

TEST(WriteBudgetTest, TimeEarnsUpToTheBurstAndDebtIsPaidFirst) {
  ManualClock clock;
  WriteBudget budget(kDay, 1000, &clock);
  budget.Spend(1500);
  clock.AdvanceMs(400);
  EXPECT_EQ(budget.Now(), Admits::kNone);
  clock.AdvanceMs(200);
  EXPECT_EQ(budget.Now(), Admits::kUsed);
  clock.AdvanceMs(1'000'000);
  EXPECT_EQ(budget.Now(), Admits::kAll);
  budget.Spend(1000);
  EXPECT_EQ(budget.Now(), Admits::kNone);
}

}  // namespace
}  // namespace quarry::server
