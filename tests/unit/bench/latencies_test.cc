#include "tools/bench/latencies.h"

#include <gtest/gtest.h>

namespace quarry::bench {
namespace {

TEST(Latencies, PercentilesAreNearestRanks) {
  Latencies latencies;
  for (int64_t us = 100; us >= 1; --us) latencies.Add(us * 1000);
  EXPECT_DOUBLE_EQ(latencies.PercentileUs(0.50), 50);
  EXPECT_DOUBLE_EQ(latencies.PercentileUs(0.99), 99);
  EXPECT_DOUBLE_EQ(latencies.PercentileUs(1), 100);
  EXPECT_DOUBLE_EQ(latencies.PercentileUs(0), 1);
}

TEST(Latencies, WithoutSamplesAreZero) { EXPECT_EQ(Latencies().PercentileUs(0.5), 0); }

TEST(Latencies, MergeCountsBoth) {
  Latencies a, b;
  a.Add(1000);
  b.Add(3000);
  b.Add(5000);
  a.Merge(b);
  EXPECT_EQ(a.count(), 3);
  EXPECT_DOUBLE_EQ(a.PercentileUs(0.5), 3);
}

TEST(Latencies, BeyondTheBoundAreAFairChoice) {
  Latencies latencies;
  const auto total = static_cast<int64_t>(3 * Latencies::kMaxSamples);
  for (int64_t i = 0; i < total; ++i) latencies.Add(i * 1000);
  EXPECT_EQ(latencies.count(), static_cast<uint64_t>(total));
  EXPECT_NEAR(latencies.PercentileUs(0.5) / static_cast<double>(total), 0.5, 0.01);
  EXPECT_NEAR(latencies.PercentileUs(0.99) / static_cast<double>(total), 0.99, 0.01);
}

TEST(Median, IsTheMiddleOrBetween) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
}

}  // namespace
}  // namespace quarry::bench
