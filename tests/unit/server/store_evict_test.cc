// What leaves the block store, and in which order.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/unit/common/test_seed.h"
#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

TEST(StoreEvictTest, EvictedBlocksAreRememberedAndCanComeBack) {
  StoreHarness h(StoreHarness::Small(64 << 10));  // 16 blocks
  const Namespace& ns = h.Open(TestSpec(kBlock));
  for (uint64_t id = 1; id <= 17; ++id) h.Put(ns, id, kBlock);
  EXPECT_EQ(h.Read(ns, 1).miss, MissCause::kEvicted);
  EXPECT_EQ(h.Match(ns, {1}).first_miss, MissCause::kEvicted);
  EXPECT_EQ(h.store->stats().evicted_blocks, 1u);
  EXPECT_EQ(h.store->stats().evicted_bytes, kBlock);
  EXPECT_EQ(h.Put(ns, 1, kBlock), PutOutcome::kStored);
}

TEST(StoreEvictTest, TailLeavesBeforeRootAndOldChainsBeforeNewOnes) {
  StoreHarness h(StoreHarness::Small(64 << 10));
  const Namespace& ns = h.Open(TestSpec(kBlock));
  h.PutChain(ns, Range(1, 8), kBlock);
  h.PutChain(ns, Range(11, 8), kBlock);
  h.Match(ns, Range(1, 4));  // the head of the first chain is in use again
  h.PutChain(ns, Range(21, 6), kBlock);
  for (uint64_t id : {1, 2, 3, 4, 11, 12, 13, 14, 15, 16}) EXPECT_TRUE(h.Has(ns, id)) << id;
  for (uint64_t id : {5, 6, 7, 8, 17, 18}) EXPECT_FALSE(h.Has(ns, id)) << id;
}

TEST(StoreEvictTest, MatchThatDoesNotTouchLeavesTheOrderAlone) {
  StoreHarness h(StoreHarness::Small(64 << 10));
  const Namespace& ns = h.Open(TestSpec(kBlock));
  for (uint64_t id = 1; id <= 16; ++id) h.Put(ns, id, kBlock);
  h.Match(ns, {1}, 0, false);
  h.Match(ns, {2}, 0, true);
  h.store->Touch(ns, 0, HashSpan(TestHashes({3, 99}), 32));
  h.Put(ns, 17, kBlock);
  h.Put(ns, 18, kBlock);
  EXPECT_FALSE(h.Has(ns, 1));
  EXPECT_TRUE(h.Has(ns, 2));
  EXPECT_TRUE(h.Has(ns, 3));
  EXPECT_FALSE(h.Has(ns, 4));
}

TEST(StoreEvictTest, AllShardsOfABlockLeaveTogether) {
  StoreHarness h(StoreHarness::Small(64 << 10));
  const Namespace& ns = h.Open(TestSpec(kBlock, 4));
  for (uint64_t id = 1; id <= 5; ++id) {
    for (uint32_t shard = 0; shard < 4; ++shard) h.Put(ns, id, kBlock, 0, 0, shard);
  }
  for (uint32_t shard = 0; shard < 4; ++shard) EXPECT_EQ(h.Read(ns, 1, shard).miss, MissCause::kEvicted);
  EXPECT_EQ(h.store->stats().complete_blocks, 4u);
  EXPECT_EQ(h.store->stats().blocks, 4u);
}

TEST(StoreEvictTest, BlocksBeingReadAreNotEvicted) {
  StoreHarness h(StoreHarness::Small(64 << 10));
  const Namespace& ns = h.Open(TestSpec(kBlock));
  std::vector<SlotRef> readers;
  for (uint64_t id = 1; id <= 16; ++id) {
    h.Put(ns, id, kBlock);
    readers.push_back(h.Read(ns, id).slot);
  }
  OfferResult offer = h.Offer(ns, 17, kBlock);
  EXPECT_EQ(offer.reason, RefusalReason::kNoSpace);
  EXPECT_EQ(h.store->stats().blocks, 16u);
  readers[4] = SlotRef();
  EXPECT_EQ(h.Put(ns, 17, kBlock), PutOutcome::kStored);
  EXPECT_FALSE(h.Has(ns, 5));
  for (uint64_t id = 1; id <= 16; ++id) {
    if (id != 5) {
      EXPECT_TRUE(PayloadIs(readers[id - 1], id));
    }
  }
}

TEST(StoreEvictTest, PutsUnderWayAreNotEvicted) {
  StoreHarness h(StoreHarness::Small(64 << 10));
  const Namespace& ns = h.Open(TestSpec(kBlock));
  std::vector<OfferResult> offers;
  for (uint64_t id = 1; id <= 16; ++id) offers.push_back(h.Offer(ns, id, kBlock));
  EXPECT_EQ(h.Offer(ns, 17, kBlock).reason, RefusalReason::kNoSpace);
  EXPECT_EQ(h.Read(ns, 17).miss, MissCause::kRefused);
  for (uint64_t id = 1; id <= 16; ++id) {
    FillPayload(offers[id - 1].ticket.slot(), id, kBlock);
    offers[id - 1].ticket.Publish();
  }
  for (uint64_t id = 1; id <= 16; ++id) EXPECT_TRUE(h.Has(ns, id));
  // They were passed over, and are evictable again in their old order.
  h.Put(ns, 17, kBlock);
  EXPECT_FALSE(h.Has(ns, 1));
  EXPECT_TRUE(h.Has(ns, 2));
}

TEST(StoreEvictTest, SlabsMoveToTheClassInDemandAndBack) {
  BlockStoreOptions options = StoreHarness::Small(64 << 20);
  options.slab_bytes = 4 << 20;
  StoreHarness h(options);
  const Namespace& ns = h.Open(TestSpec(2 << 20));
  const auto put_all = [&](uint64_t first, uint64_t count, uint64_t bytes) {
    for (uint64_t id = first; id < first + count; ++id) ASSERT_EQ(h.Put(ns, id, bytes), PutOutcome::kStored) << id;
  };
  put_all(1, 1024, 64 << 10);  // the whole arena
  EXPECT_EQ(h.store->stats().evicted_blocks, 0u);
  put_all(10'001, 32, 2 << 20);
  for (uint64_t id = 10'001; id <= 10'032; ++id) EXPECT_TRUE(PayloadIs(h.Read(ns, id).slot, id));
  EXPECT_EQ(h.store->stats().slab_moves, 16u);
  put_all(20'001, 1024, 64 << 10);
  for (uint64_t id = 20'001; id <= 21'024; ++id) EXPECT_TRUE(PayloadIs(h.Read(ns, id).slot, id));
  EXPECT_EQ(h.store->stats().slab_moves, 32u);
}

TEST(StoreEvictTest, SlabsWithLeasedBlocksDoNotMove) {
  StoreHarness h(StoreHarness::Small(256 << 10));  // 4 slabs of 16 blocks
  const Namespace& ns = h.Open(TestSpec(64 << 10));
  for (uint64_t id = 1; id <= 64; ++id) h.Put(ns, id, kBlock);
  std::vector<uint64_t> leased;
  for (uint64_t id : {1, 20, 40, 64}) leased.push_back(id);
  for (uint64_t id : leased) ASSERT_FALSE(h.Match(ns, {id}, 1000).lease.empty());
  EXPECT_EQ(h.Offer(ns, 100, 64 << 10).reason, RefusalReason::kNoSpace);
  EXPECT_EQ(h.store->stats().blocks, 64u);  // nothing was lost in vain
  h.clock.AdvanceMs(1001);
  EXPECT_EQ(h.Put(ns, 100, 64 << 10), PutOutcome::kStored);
  EXPECT_EQ(h.store->stats().evicted_blocks, 16u);
}

TEST(StoreEvictTest, ClassesShareTheArenaByUse) {
  StoreHarness h(StoreHarness::Small(1 << 20));
  const Namespace& ns = h.Open(TestSpec(64 << 10));
  TestRandom random;
  const uint64_t sizes[] = {4096, 12'288, 20'000, 40'000, 65'536};
  for (uint64_t id = 1; id <= 5000; ++id) {
    ASSERT_EQ(h.Put(ns, id, sizes[random.Between(0, 4)]), PutOutcome::kStored);
    ASSERT_TRUE(PayloadIs(h.Read(ns, id).slot, id));
  }
  uint64_t used = 0;
  for (const auto& c : h.store->stats().size_classes) used += c.slot_bytes * c.used_slots;
  EXPECT_EQ(used, h.store->stats().used_bytes);
  EXPECT_GT(used, h.store->stats().arena_bytes / 2);
}

// A plain simulation of what an offline tool would do: blocks ordered by the last request
// that used or put them, then deepest first.
class RequestLru {
 public:
  explicit RequestLru(size_t capacity) : capacity_(capacity) {}
  // Returns how many blocks from the start were there.
  size_t Request(const std::vector<uint64_t>& chain) {
    ++request_;
    size_t hits = 0;
    while (hits < chain.size() && blocks_.count(chain[hits]) != 0) ++hits;
    for (size_t i = 0; i < hits; ++i) blocks_[chain[i]] = {request_, i};
    for (size_t i = hits; i < chain.size(); ++i) {
      if (blocks_.count(chain[i]) == 0 && blocks_.size() == capacity_) EvictOne();
      blocks_[chain[i]] = {request_, i};
    }
    return hits;
  }
  bool Has(uint64_t id) const { return blocks_.count(id) != 0; }

 private:
  void EvictOne() {
    blocks_.erase(std::min_element(blocks_.begin(), blocks_.end(), [](const auto& a, const auto& b) {
      return std::make_tuple(a.second.first, -static_cast<int64_t>(a.second.second)) <
             std::make_tuple(b.second.first, -static_cast<int64_t>(b.second.second));
    }));
  }
  const size_t capacity_;
  uint64_t request_ = 0;
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> blocks_;  // request, depth
};

TEST(StoreEvictTest, OneClientsHitsAreThoseOfTheSimulation) {
  TestRandom random;
  constexpr size_t kCapacity = 256;
  StoreHarness h(StoreHarness::Small(kCapacity * kBlock));
  const Namespace& ns = h.Open(TestSpec(kBlock));
  RequestLru simulation(kCapacity);
  for (int request = 0; request < 3000; ++request) {
    // Prompts share heads: block id has parent id / 3, or begins a document of its own.
    std::vector<uint64_t> chain;
    if (random.Chance(0.8)) {
      for (uint64_t id = random.Between(1, 3000); id > 0; id /= 3) chain.insert(chain.begin(), id);
    } else {
      chain = Range(100'000 + 100 * random.Between(0, 20), random.Between(1, 60));
    }
    const size_t expected = simulation.Request(chain);
    const MatchResult match = h.Match(ns, chain, random.Chance(0.3) ? 1000 : 0);
    ASSERT_EQ(h.UsableBlocks(match), expected) << "request " << request;
    h.PutChain(ns, chain, kBlock, expected);
    if (!match.lease.empty()) {
      ASSERT_TRUE(h.store->ReleaseLease("t", match.lease).ok());
    }
    if (request % 100 == 0) {
      for (uint64_t id = 1; id <= 3000; ++id) ASSERT_EQ(h.Has(ns, id), simulation.Has(id)) << id;
    }
  }
}

}  // namespace
}  // namespace quarry::server
