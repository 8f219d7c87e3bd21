// How much of a match is worth loading, and where to split.
#include "common/load_advice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/common/test_seed.h"

namespace quarry {
namespace {

constexpr uint32_t kBlockTokens = 16;
constexpr uint64_t kBlockBytes = 1 << 20;
constexpr double kFast = 16e9;  // bytes per second

// Chains of one match, all of whose blocks are usable.
class Question {
 public:
  Question& Add(GroupKind kind, uint64_t first, const std::vector<BlockState>& states, uint32_t tokens = kBlockTokens,
                uint64_t bytes = kBlockBytes) {
    groups_.push_back({kind, tokens, 0, 1, bytes, true});
    states_.push_back(states);
    firsts_.push_back(first);
    return *this;
  }
  Question& Between(uint64_t local, uint64_t usable) {
    question_.local_tokens = local;
    question_.usable_tokens = usable;
    return *this;
  }
  Question& Path(LoadTier tier, double fixed_seconds, double bytes_per_second) {
    question_.paths[static_cast<size_t>(tier)] = {fixed_seconds, bytes_per_second};
    return *this;
  }
  Question& Prefill(double tokens_per_second) {
    question_.prefill_tokens_per_second = tokens_per_second;
    return *this;
  }
  LoadAdvice Ask() const {
    std::vector<LoadableChain> chains;
    for (size_t i = 0; i < groups_.size(); ++i) {
      chains.push_back(
          {&groups_[i], firsts_[i], states_[i], {firsts_[i], firsts_[i] + states_[i].size()}, groups_[i].shard_bytes});
    }
    LoadQuestion question = question_;
    question.chains = chains;
    return AdviseLoad(question);
  }

 private:
  LoadQuestion question_;
  std::vector<GroupSpec> groups_;
  std::vector<std::vector<BlockState>> states_;
  std::vector<uint64_t> firsts_;
};

std::vector<BlockState> Blocks(size_t count, BlockState state = BlockState::kDram) { return {count, state}; }

// 64 blocks of full attention in DRAM.
Question Plain() {
  Question question;
  question.Add(GroupKind::kFull, 0, Blocks(64)).Between(0, 64 * kBlockTokens);
  return question;
}

TEST(LoadAdviceTest, AFastPathIsWorthAllAndASlowOneNothing) {
  const LoadAdvice fast = Plain().Path(LoadTier::kDram, 0, kFast).Prefill(10'000).Ask();
  EXPECT_DOUBLE_EQ(fast.load_seconds, 64.0 * kBlockBytes / kFast);
  EXPECT_DOUBLE_EQ(fast.recompute_seconds, 64.0 * kBlockTokens / 10'000);
  EXPECT_EQ(fast.worth_tokens, 64u * kBlockTokens);
  const LoadAdvice slow = Plain().Path(LoadTier::kDram, 0, 1e6).Prefill(10'000).Ask();
  EXPECT_EQ(slow.worth_tokens, 0u);
}

TEST(LoadAdviceTest, WhatIsNotKnownIsSaidAndEverythingIsWorthLoading) {
  const LoadAdvice no_path = Plain().Prefill(10'000).Ask();
  EXPECT_EQ(no_path.load_seconds, 0);
  EXPECT_GT(no_path.recompute_seconds, 0);
  EXPECT_EQ(no_path.worth_tokens, 64u * kBlockTokens);
  EXPECT_EQ(no_path.split_tokens, 0u);
  const LoadAdvice no_rate = Plain().Path(LoadTier::kDram, 0, 1).Ask();
  EXPECT_GT(no_rate.load_seconds, 0);
  EXPECT_EQ(no_rate.recompute_seconds, 0);
  EXPECT_EQ(no_rate.worth_tokens, 64u * kBlockTokens);
  Question ssd;
  ssd.Add(GroupKind::kFull, 0, Blocks(1, BlockState::kSsd)).Between(0, kBlockTokens).Path(LoadTier::kDram, 0, kFast);
  EXPECT_EQ(ssd.Prefill(1).Ask().load_seconds, 0) << "one tier says nothing about the other";
}

TEST(LoadAdviceTest, NothingUsableIsNothingToDo) {
  const LoadAdvice advice = Question().Between(48, 48).Path(LoadTier::kDram, 0, kFast).Prefill(10'000).Ask();
  EXPECT_EQ(advice.worth_tokens, 48u);
  EXPECT_EQ(advice.split_tokens, 48u);
  EXPECT_EQ(advice.load_seconds, 0);
}

TEST(LoadAdviceTest, ItPaysFromTheBreakEvenLengthOn) {
  const LoadPath path{0.01, kFast};
  const double rate = 10'000;
  PrefixBytes bytes;
  bytes.full_token_bytes = kBlockBytes / kBlockTokens;
  const uint64_t break_even = *BreakEvenTokens(bytes, path, rate);
  const uint64_t blocks = (break_even + kBlockTokens - 1) / kBlockTokens;
  for (const uint64_t count : {blocks - 1, blocks}) {
    Question question;
    question.Add(GroupKind::kFull, 0, Blocks(count)).Between(0, count * kBlockTokens);
    const LoadAdvice advice = question.Path(LoadTier::kDram, path.fixed_seconds, kFast).Prefill(rate).Ask();
    EXPECT_EQ(advice.worth_tokens, count == blocks ? count * kBlockTokens : 0) << count;
  }
}

TEST(LoadAdviceTest, ASlowTierBehindAFastOneIsLeftToTheEngine) {
  std::vector<BlockState> states = Blocks(40);
  states.resize(64, BlockState::kSsd);
  Question question;
  question.Add(GroupKind::kFull, 0, states).Between(0, 64 * kBlockTokens);
  question.Path(LoadTier::kDram, 0, kFast).Path(LoadTier::kSsd, 0, 1e6).Prefill(10'000);
  EXPECT_EQ(question.Ask().worth_tokens, 40u * kBlockTokens);
}

TEST(LoadAdviceTest, EquallyFastTheyMeetInTheMiddle) {
  const double rate = 10'000;
  const double bandwidth = kBlockBytes / (kBlockTokens / rate);
  EXPECT_EQ(Plain().Path(LoadTier::kDram, 0, bandwidth).Prefill(rate).Ask().split_tokens, 32u * kBlockTokens);
  // Three times as fast: the engine computes a quarter.
  EXPECT_EQ(Plain().Path(LoadTier::kDram, 0, 3 * bandwidth).Prefill(rate).Ask().split_tokens, 16u * kBlockTokens);
}

TEST(LoadAdviceTest, TheLocalHitIsNeitherLoadedNorComputed) {
  Question question;
  question.Add(GroupKind::kFull, 10, Blocks(20)).Between(10 * kBlockTokens, 30 * kBlockTokens);
  const LoadAdvice advice = question.Path(LoadTier::kDram, 0, kFast).Prefill(10'000).Ask();
  EXPECT_DOUBLE_EQ(advice.load_seconds, 20.0 * kBlockBytes / kFast);
  EXPECT_DOUBLE_EQ(advice.recompute_seconds, 20.0 * kBlockTokens / 10'000);
}

TEST(LoadAdviceTest, WindowsAndStatesAreLoadedWholeOrNotAtAll) {
  const double rate = 10'000;
  Question question;
  question.Add(GroupKind::kFull, 0, Blocks(64)).Add(GroupKind::kWindow, 60, Blocks(4)).Between(0, 64 * kBlockTokens);
  question.Add(GroupKind::kState, 63, Blocks(1), kBlockTokens, 100 * kBlockBytes);
  question.Path(LoadTier::kDram, 0, kFast).Prefill(rate);
  const LoadAdvice advice = question.Ask();
  EXPECT_DOUBLE_EQ(advice.load_seconds, (64.0 + 4 + 100) * kBlockBytes / kFast);
  EXPECT_EQ(advice.worth_tokens, 64u * kBlockTokens);
  // The state costs so much that all but the last tokens can be computed meanwhile; without it
  // the rest is of no use.
  question.Path(LoadTier::kDram, 0, 110 * kBlockBytes / (64 * kBlockTokens / rate));
  EXPECT_EQ(question.Ask().worth_tokens, 0u);
  EXPECT_LT(question.Ask().split_tokens, 64u * kBlockTokens);
  EXPECT_GT(question.Ask().split_tokens, 50u * kBlockTokens);
}

TEST(LoadAdviceTest, NoEndIsBetterThanTheOneAdvised) {
  TestRandom random;
  for (int round = 0; round < 300; ++round) {
    const size_t count = random.Between(1, 40);
    std::vector<BlockState> states(count);
    for (BlockState& state : states) state = random.Chance(0.5) ? BlockState::kDram : BlockState::kSsd;
    const double rate = std::pow(10, static_cast<double>(random.Between(200, 600)) / 100);
    const double fixed = static_cast<double>(random.Between(0, 10)) / 1000;
    Question question;
    question.Add(GroupKind::kFull, 0, states).Between(0, count * kBlockTokens).Prefill(rate);
    question.Path(LoadTier::kDram, fixed, kFast).Path(LoadTier::kSsd, fixed, kFast / 10);
    const LoadAdvice advice = question.Ask();

    const auto load = [&](size_t from, size_t to) {
      double bytes[2] = {0, 0};
      for (size_t i = from; i < to; ++i) bytes[states[i] == BlockState::kSsd ? 1 : 0] += kBlockBytes;
      return (bytes[0] > 0 ? fixed + bytes[0] / kFast : 0) + (bytes[1] > 0 ? fixed + bytes[1] / (kFast / 10) : 0);
    };
    const auto saved = [&](size_t end) { return static_cast<double>(end * kBlockTokens) / rate - load(0, end); };
    const auto done = [&](size_t end) {
      return std::max(static_cast<double>(end * kBlockTokens) / rate, load(end, count));
    };
    ASSERT_EQ(advice.worth_tokens % kBlockTokens, 0u);
    for (size_t end = 0; end <= count; ++end) {
      EXPECT_LE(saved(end), saved(advice.worth_tokens / kBlockTokens) + 1e-12) << end << " of " << count;
      EXPECT_GE(done(end), done(advice.split_tokens / kBlockTokens) - 1e-12) << end << " of " << count;
    }
  }
}

}  // namespace
}  // namespace quarry
