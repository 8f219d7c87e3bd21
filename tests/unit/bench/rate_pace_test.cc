#include "tools/bench/rate_pace.h"

#include <gtest/gtest.h>

namespace quarry::bench {
namespace {

constexpr double kBytesPerS = 1'000;

TEST(RatePace, LetsThroughWhatIsDueAndNoMore) {
  ManualClock clock;
  RatePace pace(&clock);
  pace.Begin(kBytesPerS);
  EXPECT_TRUE(pace.Take(100, false));
  EXPECT_FALSE(pace.Take(100, false));
  clock.AdvanceMs(99);
  EXPECT_FALSE(pace.Take(100, false));
  clock.AdvanceMs(1);
  EXPECT_TRUE(pace.Take(100, false));
  EXPECT_FALSE(pace.Take(100, false));
}

TEST(RatePace, WhatWasNotTakenInTimeIsOwed) {
  ManualClock clock;
  RatePace pace(&clock);
  pace.Begin(kBytesPerS);
  clock.AdvanceMs(250);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pace.Take(100, false)) << i;
  EXPECT_FALSE(pace.Take(100, false));
}

TEST(RatePace, ANewBeginningOwesNothing) {
  ManualClock clock;
  RatePace pace(&clock);
  pace.Begin(kBytesPerS);
  clock.AdvanceMs(60'000);
  pace.Begin(2 * kBytesPerS);
  EXPECT_TRUE(pace.Take(100, false));
  EXPECT_FALSE(pace.Take(100, false));
  clock.AdvanceMs(50);
  EXPECT_TRUE(pace.Take(100, false));
}

TEST(RatePace, WaitsUntilTheNextAreDue) {
  RatePace pace(Clock::Real());
  const int64_t begin_ns = Clock::Real()->NowNs();
  pace.Begin(kBytesPerS);
  EXPECT_TRUE(pace.Take(30, true));
  EXPECT_TRUE(pace.Take(30, true));
  EXPECT_GE(Clock::Real()->NowNs() - begin_ns, 30 * kNsPerMs);
}

}  // namespace
}  // namespace quarry::bench
