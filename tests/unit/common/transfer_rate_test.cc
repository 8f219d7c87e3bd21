#include "common/transfer_rate.h"

#include <gtest/gtest.h>

namespace quarry {
namespace {

constexpr double kNsPerByte = 0.25;  // 4 GB/s
constexpr int64_t kFixedNs = 50'000;

int64_t Takes(uint64_t bytes) { return kFixedNs + static_cast<int64_t>(kNsPerByte * static_cast<double>(bytes)); }

TEST(TransferRateTest, NothingIsKnownOfNothing) {
  TransferRate rate;
  rate.Record(0, 5);
  rate.Record(5, 0);
  rate.Record(5, -1);
  EXPECT_EQ(rate.EstimateNs(1 << 20), 0);
}

TEST(TransferRateTest, TellsFixedCostFromBandwidth) {
  TransferRate rate;
  for (uint64_t i = 1; i <= 100; ++i) rate.Record(i * 100'000, Takes(i * 100'000));
  EXPECT_NEAR(rate.fit().fixed_ns, kFixedNs, 1);
  EXPECT_NEAR(rate.fit().ns_per_byte, kNsPerByte, 1e-6);
  EXPECT_NEAR(static_cast<double>(rate.EstimateNs(1 << 30)), static_cast<double>(Takes(1 << 30)), 1e4);
}

TEST(TransferRateTest, OfOneSizeAloneAllIsBandwidth) {
  TransferRate rate;
  for (int i = 0; i < 10; ++i) rate.Record(1'000'000, 300'000);
  EXPECT_NEAR(static_cast<double>(rate.EstimateNs(2'000'000)), 600'000, 1);
}

TEST(TransferRateTest, FollowsWhatChanges) {
  TransferRate rate;
  for (int i = 0; i < 1000; ++i) rate.Record(1'000'000, 1'000'000);
  for (int i = 0; i < 300; ++i) rate.Record(1'000'000, 100'000);
  EXPECT_NEAR(static_cast<double>(rate.EstimateNs(1'000'000)), 100'000, 5'000);
}

TEST(TransferRateTest, NoiseMakesNoPartNegative) {
  TransferRate rate;
  rate.Record(1'000, 900'000);  // a small one that was held up
  rate.Record(1'000'000, 100'000);
  EXPECT_GE(rate.fit().fixed_ns, 0);
  EXPECT_GT(rate.fit().ns_per_byte, 0);
  EXPECT_GT(rate.EstimateNs(1), -1);
}

}  // namespace
}  // namespace quarry
