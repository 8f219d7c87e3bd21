#include "common/load_cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/unit/common/test_seed.h"

namespace quarry {
namespace {

constexpr uint64_t kGiB = 1ull << 30;

TEST(LoadSecondsTest, SmallReadsMoveOneGibibyteInThreeAndAQuarterSeconds) {
  const double rate = BytesPerSecond(20'000, 16 << 10);
  EXPECT_DOUBLE_EQ(rate, 312.5 * (1 << 20));
  EXPECT_NEAR(LoadSeconds({.bytes_per_second = rate}, kGiB), 3.28, 0.005);
}

TEST(LoadSecondsTest, FixedTimeIsAdded) {
  EXPECT_DOUBLE_EQ(LoadSeconds({.fixed_seconds = 0.25, .bytes_per_second = 4}, 8), 2.25);
  EXPECT_DOUBLE_EQ(LoadSeconds({.fixed_seconds = 0.25, .bytes_per_second = 4}, 0), 0.25);
}

TEST(PrefillTest, TakesTwoFlopForEachParameterAndToken) {
  // 70e9 parameters x 10,000 tokens x 2 = 1.4 PFLOP.
  const double rate = PrefillTokensPerSecond(70e9, 4e15);
  EXPECT_NEAR(RecomputeSeconds(10'000, rate), 1.4e15 / 4e15, 1e-12);
}

TEST(PrefixBytesTest, WindowsStopGrowingAndStatesNeverDo) {
  const PrefixBytes prefix{.state_bytes = 7, .full_token_bytes = 10, .windows = {{100, 3}, {5, 1000}}};
  EXPECT_EQ(prefix.At(0), 7u);
  EXPECT_EQ(prefix.At(5), 7u + 50 + 15 + 5000);
  EXPECT_EQ(prefix.At(1000), 7u + 10'000 + 300 + 5000);
}

TEST(BreakEvenTest, IsWhereTheFixedTimeIsEarnedBack) {
  // A token: loaded in 1 s, computed in 3 s. 10 s are earned back after 5, exceeded after 6.
  const PrefixBytes prefix{.full_token_bytes = 4};
  EXPECT_EQ(BreakEvenTokens(prefix, {.fixed_seconds = 10, .bytes_per_second = 4}, 1.0 / 3), 6u);
  EXPECT_EQ(BreakEvenTokens(prefix, {.fixed_seconds = 0, .bytes_per_second = 4}, 1.0 / 3), 1u);
}

TEST(BreakEvenTest, IsNeverOnAPathAsSlowAsComputing) {
  const PrefixBytes prefix{.full_token_bytes = 4};
  EXPECT_EQ(BreakEvenTokens(prefix, {.bytes_per_second = 4}, 1), std::nullopt);
  EXPECT_EQ(BreakEvenTokens(prefix, {.bytes_per_second = 3}, 1), std::nullopt);
}

TEST(BreakEvenTest, AFullWindowMakesTheRestCheap) {
  // Within the window a token loads slower than it is computed, beyond it for nothing.
  const PrefixBytes prefix{.windows = {{100, 20}}};
  EXPECT_EQ(BreakEvenTokens(prefix, {.bytes_per_second = 10}, 1), 201u);
}

// Against a search of every length.
TEST(BreakEvenTest, EqualsTrialOfEveryLength) {
  std::mt19937_64 random(TestSeed());
  const auto draw = [&](uint64_t most) { return random() % (most + 1); };
  for (int round = 0; round < 300; ++round) {
    PrefixBytes prefix{.state_bytes = draw(1000), .full_token_bytes = draw(20)};
    for (uint64_t i = draw(2); i > 0; --i) prefix.windows.push_back({1 + draw(200), draw(50)});
    const LoadPath path{.fixed_seconds = static_cast<double>(draw(50)),
                        .bytes_per_second = static_cast<double>(1 + draw(40))};
    const double rate = 0.25 * static_cast<double>(1 + draw(8));
    constexpr uint64_t kTried = 3000;
    std::optional<uint64_t> first;
    for (uint64_t tokens = 1; tokens <= kTried; ++tokens) {
      const bool wins = LoadSeconds(path, prefix.At(tokens)) < RecomputeSeconds(tokens, rate);
      if (wins && !first.has_value()) first = tokens;
      EXPECT_TRUE(wins || !first.has_value()) << "wins from " << *first << " but not at " << tokens;
    }
    const std::optional<uint64_t> found = BreakEvenTokens(prefix, path, rate);
    if (first.has_value()) {
      EXPECT_EQ(found, first);
    } else {
      EXPECT_GT(found.value_or(kTried + 1), kTried);
    }
  }
}

}  // namespace
}  // namespace quarry
