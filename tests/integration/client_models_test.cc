// Models of several groups and shards: what ranks put is what every rank gets, and what is
// usable follows from what is there.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>
#include <thread>

#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/unit/common/test_seed.h"

namespace quarry::testing {
namespace {

enum Group : uint32_t { kFull, kWindow, kState };
constexpr uint32_t kRanks = 2;
constexpr uint64_t kPromptTokens = 256;
constexpr uint64_t kWindowTokens = 64;
constexpr size_t kStateBytes = 150'001;  // less than the spec's most
constexpr uint64_t kFirstId = 1000;

ModelSpec HybridSpec() {
  ModelSpec spec = PlainSpec(0);
  spec.model = "hybrid";
  spec.groups = {
      {.kind = GroupKind::kFull, .tokens_per_block = 16, .shards = kRanks, .shard_bytes = 98'344},
      {.kind = GroupKind::kWindow,
       .tokens_per_block = 32,
       .window_tokens = kWindowTokens,
       .shards = kRanks,
       .shard_bytes = 20'000},
      {.kind = GroupKind::kState, .tokens_per_block = 64, .shard_bytes = 200'000, .exact_bytes = false},
  };
  return spec;
}

// A tensor-parallel rank: its shards of all blocks of a prompt. The state is rank 0's.
struct Rank {
  Rank(const std::string& address, uint32_t number)
      : peer(address, HybridSpec()),
        shard(number),
        full(peer, kFirstId, kPromptTokens / 16, kFull, number),
        window(peer, kFirstId, kPromptTokens / 32, kWindow, number),
        state(peer, kFirstId, kPromptTokens / 64, kState, 0, kStateBytes) {}

  absl::Status PutAll() {
    absl::Status status = full.Put();
    if (status.ok()) status = window.Put();
    if (status.ok() && shard == 0) status = state.Put();
    return status;
  }
  // Puts one block of a batch.
  absl::Status PutOne(Batch* batch, size_t i) {
    batch->Fill();
    auto put = peer->Put(peer.ns(), {batch->ItemAt(i)});
    return put.ok() ? put->items[0].status : put.status();
  }
  absl::StatusOr<MatchResult> Match() {
    const std::array<Chain, 3> chains = {full.AsChain(), window.AsChain(), state.AsChain()};
    return peer->Match(peer.ns(), chains);
  }
  // Every block of the prompt, whether or not a match needs it.
  ::testing::AssertionResult GetsAll() {
    for (Batch* batch : {&full, &window, &state}) {
      if (auto comes_back = batch->ComesBack(); !comes_back) return comes_back;
    }
    return ::testing::AssertionSuccess();
  }

  Peer peer;
  uint32_t shard;
  Batch full;
  Batch window;
  Batch state;
};

class ClientModelsTest : public ::testing::Test {
 protected:
  void TearDown() override {
    ranks_.clear();
    EXPECT_TRUE(server_.BecomesIdle(0));
    EXPECT_EQ(server_.Stop(), 0);
  }

  PrivateServer server_{"160MiB"};
  std::list<Rank> ranks_;
  Rank& zero_ = ranks_.emplace_back(server_.address(), 0);
  Rank& one_ = ranks_.emplace_back(server_.address(), 1);
};

TEST_F(ClientModelsTest, WhatTheRanksPutIsWhatEachOfThemGets) {
  std::thread other([this] { EXPECT_TRUE(one_.PutAll().ok()); });
  EXPECT_TRUE(zero_.PutAll().ok());
  other.join();
  for (Rank* rank : {&zero_, &one_}) {
    const auto match = rank->Match();
    ASSERT_TRUE(match.ok()) << match.status();
    EXPECT_EQ(match->usable_tokens, kPromptTokens);
    EXPECT_EQ(match->first_miss, MissCause::kNone);
    EXPECT_EQ(match->chains[kFull].first_usable, 0u);
    EXPECT_EQ(match->chains[kFull].end_usable, 16u);
    EXPECT_EQ(match->chains[kWindow].first_usable, 6u);
    EXPECT_EQ(match->chains[kWindow].end_usable, 8u);
    EXPECT_EQ(match->chains[kState].first_usable, 3u);
    EXPECT_EQ(match->chains[kState].end_usable, 4u);
    EXPECT_TRUE(rank->GetsAll());
  }
}

TEST_F(ClientModelsTest, ABlockIsThereOnlyWithAllItsShards) {
  ASSERT_TRUE(zero_.PutAll().ok());
  const auto alone = one_.Match();
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->usable_tokens, 0u);
  EXPECT_EQ(alone->first_miss, MissCause::kIncomplete);
  EXPECT_EQ(alone->first_miss_block, 0u);
  EXPECT_EQ(alone->chains[kFull].states, std::vector<BlockState>(16, BlockState::kIncomplete));
  EXPECT_EQ(alone->chains[kState].states, std::vector<BlockState>(4, BlockState::kDram));
  EXPECT_TRUE(one_.full.IsMissed(MissCause::kIncomplete));
  EXPECT_TRUE(zero_.full.ComesBack());  // of the shard that is there, every byte

  // All but one shard: the end is the last that is legal for every group before it.
  ASSERT_TRUE(one_.window.Put().ok());
  for (size_t i = 0; i < one_.full.size(); ++i) {
    if (i != 5) {
      ASSERT_TRUE(one_.PutOne(&one_.full, i).ok());
    }
  }
  const auto holed = zero_.Match();
  ASSERT_TRUE(holed.ok()) << holed.status();
  EXPECT_EQ(holed->usable_tokens, 64u);
  EXPECT_EQ(holed->first_miss, MissCause::kIncomplete);
  EXPECT_EQ(holed->first_miss_chain, kFull);
  EXPECT_EQ(holed->first_miss_block, 5u);

  ASSERT_TRUE(one_.PutOne(&one_.full, 5).ok());
  const auto whole = zero_.Match();
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->usable_tokens, kPromptTokens);
  EXPECT_TRUE(one_.GetsAll());
}

TEST_F(ClientModelsTest, AMissingGroupIsTheMiss) {
  for (Rank* rank : {&zero_, &one_}) {
    ASSERT_TRUE(rank->full.Put().ok());
    ASSERT_TRUE(rank->window.Put().ok());
  }
  const auto without = zero_.Match();
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->usable_tokens, 0u);
  EXPECT_EQ(without->first_miss, MissCause::kNeverStored);
  EXPECT_EQ(without->first_miss_chain, kState);
  EXPECT_TRUE(zero_.state.IsMissed(MissCause::kNeverStored));

  ASSERT_TRUE(zero_.PutOne(&zero_.state, 1).ok());
  const auto with = one_.Match();
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(with->usable_tokens, 128u);
  EXPECT_EQ(with->chains[kState].first_usable, 1u);
  EXPECT_EQ(with->chains[kState].end_usable, 2u);
  EXPECT_TRUE(one_.full.ComesBack());
  EXPECT_TRUE(one_.window.ComesBack());
}

TEST_F(ClientModelsTest, AFetchMovesOfEachGroupWhatThePrefixNeeds) {
  for (Rank* rank : {&zero_, &one_}) ASSERT_TRUE(rank->PutAll().ok());
  Batch* const batches[] = {&zero_.full, &zero_.window, &zero_.state};
  std::vector<Chain> chains;
  std::vector<std::vector<SegmentList>> destinations;
  for (Batch* batch : batches) {
    batch->buffers().Clear();
    chains.push_back(batch->AsChain());
    destinations.push_back(batch->Destinations());
  }
  const auto fetched = zero_.peer->FetchPrefix(zero_.peer.ns(), chains, destinations, {.match = {.lease_ms = 0}});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->fetched_blocks, 16u + 2u + 1u);
  size_t item = 0;
  for (size_t group = 0; group < 3; ++group) {
    const MatchResult::Chain& chain = fetched->match.chains[group];
    for (size_t i = 0; i < batches[group]->size(); ++i, ++item) {
      const bool needed = i >= chain.first_usable && i < chain.end_usable;
      EXPECT_TRUE(needed ? batches[group]->Holds(i) : batches[group]->buffers().Untouched(i)) << group << ", " << i;
      EXPECT_EQ(fetched->transfer.items[item].status.ok(), needed) << fetched->transfer.items[item].status;
    }
    EXPECT_TRUE(batches[group]->buffers().GapsIntact());
  }
}

// The rule, read off its words: see common/match_rule.h.
uint64_t GreatestEnd(const std::vector<bool>& full, const std::vector<bool>& window, const std::vector<bool>& state) {
  const auto all = [](const std::vector<bool>& there, uint64_t tokens, uint64_t begin, uint64_t end) {
    for (uint64_t token = begin; token < end; ++token) {
      if (!there[token / tokens]) return false;
    }
    return true;
  };
  for (uint64_t end = kPromptTokens; end > 0; --end) {
    if (end % 64 != 0 || !state[end / 64 - 1]) continue;
    if (all(full, 16, 0, end) && all(window, 32, end - std::min(end, kWindowTokens), end)) return end;
  }
  return 0;
}

TEST_F(ClientModelsTest, WhateverIsThereTheMatchIsTheRuleOverIt) {
  TestRandom random;
  for (int round = 0; round < (kSanitized ? 5 : 20); ++round) {
    const uint64_t first_id = 10'000 + static_cast<uint64_t>(round) * 100;
    // Blocks of which both ranks have put their shards.
    std::vector<bool> there[3];
    for (Rank* rank : {&zero_, &one_}) {
      size_t group = 0;
      for (Batch* batch : {&rank->full, &rank->window, &rank->state}) {
        std::vector<bool>& whole = there[group++];
        whole.resize(batch->size(), true);
        batch->MoveTo(first_id);
        batch->Fill();
        std::vector<Item> items;
        for (size_t i = 0; i < batch->size(); ++i) {
          const bool mine = batch != &one_.state;
          const bool put = !mine || random.Chance(0.93);
          whole[i] = whole[i] && put;
          if (mine && put) items.push_back(batch->ItemAt(i));
        }
        if (!items.empty()) {
          ASSERT_TRUE(rank->peer->Put(rank->peer.ns(), items).ok());
        }
      }
    }
    const auto match = one_.Match();
    ASSERT_TRUE(match.ok()) << match.status();
    EXPECT_EQ(match->usable_tokens, GreatestEnd(there[kFull], there[kWindow], there[kState]));
    for (size_t i = match->chains[kFull].first_usable; i < match->chains[kFull].end_usable; ++i) {
      zero_.full.buffers().Clear();
      ASSERT_TRUE(zero_.peer->Get(zero_.peer.ns(), {zero_.full.ItemAt(i)}).ok());
      EXPECT_TRUE(zero_.full.Holds(i));
    }
  }
}

}  // namespace
}  // namespace quarry::testing
