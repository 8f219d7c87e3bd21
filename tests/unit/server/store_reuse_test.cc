// Which calls of the store count as uses for the estimated hits of other memory sizes.
#include <gtest/gtest.h>

#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

constexpr uint64_t kArena = 1 << 20;
constexpr uint64_t kFit = kArena / kBlock;

class StoreReuseTest : public testing::Test {
 protected:
  static BlockStoreOptions Options() {
    BlockStoreOptions options = StoreHarness::Small(kArena);
    options.reuse_sample_rate = 1;
    return options;
  }
  // Matches each block by itself, and puts those that are missing.
  void UseInTurn(uint64_t blocks) {
    for (uint64_t id = 1; id <= blocks; ++id) {
      if (h_.UsableBlocks(h_.Match(ns_, {id})) == 0) h_.Put(ns_, id, kBlock);
    }
  }

  StoreHarness h_{Options()};
  const Namespace& ns_ = h_.Open(TestSpec(kBlock));
};

// Blocks in turn, half as many again as fit: none hits here, all would in twice the memory.
TEST_F(StoreReuseTest, TellsThatTwiceTheMemoryWouldHit) {
  constexpr uint64_t kBlocks = kFit + kFit / 2;
  for (int round = 0; round < 3; ++round) UseInTurn(kBlocks);
  const StoreStats stats = h_.store->stats();
  EXPECT_EQ(stats.match_hits, 0u);
  EXPECT_EQ(stats.match_uses, 3 * kBlocks);
  EXPECT_EQ(stats.estimated_misses, (std::array<double, 4>{3 * kBlocks, 3 * kBlocks, kBlocks, kBlocks}));
}

TEST_F(StoreReuseTest, TellsThatHalfTheMemoryWouldNotHit) {
  for (int round = 0; round < 3; ++round) UseInTurn(kFit - 1);
  const StoreStats stats = h_.store->stats();
  EXPECT_EQ(stats.match_hits, 2 * (kFit - 1));
  const double cold = kFit - 1;
  EXPECT_EQ(stats.estimated_misses, (std::array<double, 4>{3 * cold, cold, cold, cold}));
}

TEST_F(StoreReuseTest, AMatchThatDoesNotTouchDoesNotCount) {
  h_.Put(ns_, 1, kBlock);
  h_.Match(ns_, {1, 2}, 0, /*touch=*/false);
  EXPECT_EQ(h_.store->stats().match_uses, 0u);
  EXPECT_EQ(h_.store->stats().match_hashes, 2u);
  h_.Match(ns_, {1, 2});
  EXPECT_EQ(h_.store->stats().match_uses, 2u);
  EXPECT_EQ(h_.store->stats().estimated_misses[3], 1);
}

TEST_F(StoreReuseTest, ATouchCountsAsRecentButIsNoMatch) {
  for (uint64_t id = 1; id <= kFit; ++id) h_.Put(ns_, id, kBlock);
  h_.store->Touch(ns_, 0, HashSpan(TestHash(1), 32));
  EXPECT_EQ(h_.store->stats().match_uses, 0u);
  h_.Match(ns_, {1});
  EXPECT_EQ(h_.store->stats().estimated_misses[0], 0);
}

// What the server refused for lack of room, more memory would have had.
TEST_F(StoreReuseTest, ARefusedBlockCountsAsOneThatMoreMemoryWouldHave) {
  std::vector<uint64_t> ids;
  for (uint64_t id = 1; id <= kFit; ++id) ids.push_back(id);
  BlockStoreOptions options = Options();
  options.max_leased_share = 1;
  StoreHarness h(options);
  const Namespace& ns = h.Open(TestSpec(kBlock));
  h.PutChain(ns, ids, kBlock);
  ASSERT_EQ(h.UsableBlocks(h.Match(ns, ids, 1000)), kFit);
  ASSERT_EQ(h.Put(ns, kFit + 1, kBlock), PutOutcome::kRefused);
  const double before = h.store->stats().estimated_misses[2];
  EXPECT_EQ(h.UsableBlocks(h.Match(ns, {kFit + 1})), 0u);
  EXPECT_EQ(h.store->stats().estimated_misses[2], before);
}

TEST_F(StoreReuseTest, ACorruptBlockMissesAtEverySize) {
  h_.Put(ns_, 1, kBlock);
  h_.store->DropCorrupt(ns_, 0, TestHash(1));
  h_.Match(ns_, {1});
  EXPECT_EQ(h_.store->stats().estimated_misses[3], 1);
}

TEST_F(StoreReuseTest, ABlockIsAsLargeAsAllItsShards) {
  const Namespace& ns = h_.Open(TestSpec(kBlock, /*shards=*/2), "two");
  for (uint64_t id = 1; id <= kFit / 2; ++id) {
    for (uint32_t shard : {0, 1}) h_.Put(ns, id, kBlock, 0, 0, shard);
  }
  h_.Match(ns, {1});  // all newer blocks and this one fill the arena
  EXPECT_EQ(h_.store->stats().estimated_misses, (std::array<double, 4>{1, 0, 0, 0}));
}

TEST(StoreReuseOptionsTest, TheRateIsAShare) {
  ManualClock clock;
  BlockStoreOptions options = StoreHarness::Small(kArena);
  options.reuse_sample_rate = 1.5;
  const auto created = BlockStore::Create(options, &clock);
  ASSERT_EQ(created.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(created.status().message(), "reuse_sample_rate: 1.5 is not in 0..1");
}

}  // namespace
}  // namespace quarry::server
