// Blocks by themselves: lookups, removal, listing, pins, clearing, events.
#include <algorithm>
#include <set>

#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

class StoreBlocksTest : public ::testing::Test {
 protected:
  std::vector<BlockInfo> Lookup(const std::vector<uint64_t>& ids) {
    const std::string hashes = TestHashes(ids);
    return harness.store->Lookup(ns, 0, HashSpan(hashes, 32));
  }
  uint32_t Remove(const std::vector<uint64_t>& ids) {
    const std::string hashes = TestHashes(ids);
    return harness.store->Remove(ns, 0, HashSpan(hashes, 32));
  }
  absl::StatusOr<PinnedBlocks> Pin(const std::vector<uint64_t>& ids) {
    const std::string hashes = TestHashes(ids);
    return harness.store->Pin(ns, 0, HashSpan(hashes, 32));
  }
  std::set<std::string> List(const Namespace& of, uint32_t page_size) {
    std::set<std::string> all;
    for (uint64_t cursor = 0; cursor != BlockStore::kEndOfIndex;) {
      const BlockPage page = harness.store->List(of, cursor, page_size);
      EXPECT_LE(page.blocks.size(), page_size);
      for (const BlockInfo& block : page.blocks) EXPECT_TRUE(all.insert(block.hash).second) << "listed twice";
      cursor = page.next;
    }
    return all;
  }
  void Tick(int times) {
    for (int i = 0; i < times; ++i) harness.store->Tick();
  }
  std::vector<BlockEvent> Events() {
    std::vector<BlockEvent> events;
    harness.store->events().Read(0, 1000, &events);
    return events;
  }

  StoreHarness harness{StoreHarness::Small(4 << 20)};
  const Namespace& ns = harness.Open(TestSpec(kBlock));
};

TEST_F(StoreBlocksTest, ALookupDescribesWhatIsThereAndWhyTheRestIsNot) {
  harness.PutChain(ns, Range(1, 3), kBlock);
  OfferResult in_flight = harness.Offer(ns, 9, kBlock);
  Remove({2});
  const MatchResult match = harness.Match(ns, {1}, 1000);
  const auto blocks = Lookup({1, 2, 3, 9, 77});
  EXPECT_EQ(blocks[0].state, BlockState::kDram);
  EXPECT_EQ(blocks[0].leases, 1u);
  EXPECT_EQ(blocks[0].bytes, kBlock);
  EXPECT_EQ(blocks[0].shards_there, 1u);
  EXPECT_EQ(blocks[2].depth, 2u);
  EXPECT_EQ(blocks[1].miss, MissCause::kRetired);
  EXPECT_EQ(blocks[3].miss, MissCause::kInFlight);
  EXPECT_EQ(blocks[4].miss, MissCause::kNeverStored);
  EXPECT_EQ(blocks[4].hash, TestHash(77));
}

TEST_F(StoreBlocksTest, RemovedBlocksAreGoneThoughLeasedAndTheirMemoryIsFree) {
  harness.PutChain(ns, Range(1, 4), kBlock);
  const MatchResult match = harness.Match(ns, Range(1, 4), 60'000);
  EXPECT_EQ(Remove({2, 3, 99, 2}), 2u);
  EXPECT_EQ(harness.store->stats().used_bytes, 2 * kBlock);
  EXPECT_EQ(harness.store->stats().leased_bytes, 2 * kBlock);
  EXPECT_EQ(harness.Read(ns, 2).miss, MissCause::kRetired);
  EXPECT_TRUE(harness.Has(ns, 1));
  EXPECT_EQ(harness.Put(ns, 2, kBlock), PutOutcome::kStored);
  EXPECT_TRUE(harness.store->ReleaseLease("t", match.lease).ok());
  EXPECT_TRUE(harness.Has(ns, 2)) << "the lease was on the block that was removed, not on this one";
  EXPECT_EQ(harness.store->stats().leased_bytes, 0u);
}

TEST_F(StoreBlocksTest, AReaderKeepsTheBytesOfARemovedBlock) {
  harness.Put(ns, 1, kBlock);
  const ReadResult read = harness.Read(ns, 1);
  EXPECT_EQ(Remove({1}), 1u);
  EXPECT_TRUE(PayloadIs(read.slot, 1));
}

TEST_F(StoreBlocksTest, APutUnderWayOfARemovedBlockIsNotPublished) {
  OfferResult offer = harness.Offer(ns, 1, kBlock);
  EXPECT_EQ(Remove({1}), 1u);
  offer.ticket.Publish();
  EXPECT_FALSE(harness.Has(ns, 1));
  EXPECT_EQ(harness.store->stats().used_bytes, 0u);
}

TEST_F(StoreBlocksTest, AListingHasEachBlockOfTheNamespaceOnce) {
  const Namespace& other = harness.Open(TestSpec(kBlock), "other");
  harness.PutChain(ns, Range(1, 300), kBlock);
  harness.PutChain(other, Range(1000, 50), kBlock);
  Remove(Range(100, 50));
  std::set<std::string> expected;
  for (uint64_t id : Range(1, 99)) expected.insert(TestHash(id));
  for (uint64_t id : Range(150, 151)) expected.insert(TestHash(id));
  for (uint32_t page_size : {1u, 7u, 250u, 10'000u}) EXPECT_EQ(List(ns, page_size), expected);
  EXPECT_EQ(List(other, 10).size(), 50u);
}

TEST_F(StoreBlocksTest, AListingBeyondTheEndIsEmpty) {
  harness.Put(ns, 1, kBlock);
  for (uint64_t cursor : {uint64_t{1} << 60, uint64_t{63} << 32 | UINT32_MAX, BlockStore::kEndOfIndex}) {
    const BlockPage page = harness.store->List(ns, cursor, 10);
    EXPECT_TRUE(page.blocks.empty());
    EXPECT_EQ(page.next, BlockStore::kEndOfIndex);
  }
}

TEST_F(StoreBlocksTest, PinnedBlocksStayWhateverTheTime) {
  harness.PutChain(ns, Range(1, 3), kBlock);
  const auto pinned = Pin({1, 2, 3, 99});
  ASSERT_TRUE(pinned.ok()) << pinned.status();
  EXPECT_EQ(pinned->count, 3u);
  harness.clock.AdvanceMs(int64_t{365} * 24 * 3600 * 1000);
  Tick(2);
  for (uint64_t id : Range(100, 2000)) harness.Put(ns, id, kBlock);
  for (uint64_t id : Range(1, 3)) EXPECT_TRUE(harness.Has(ns, id));
  EXPECT_TRUE(harness.store->ReleaseLease("t", pinned->token).ok());
  for (uint64_t id : Range(3000, 2000)) harness.Put(ns, id, kBlock);
  for (uint64_t id : Range(1, 3)) EXPECT_FALSE(harness.Has(ns, id));
}

TEST_F(StoreBlocksTest, APinBeyondTheLeasedShareLeavesNothingPinned) {
  harness.PutChain(ns, Range(1, 1000), kBlock);  // 0.98 of the arena; at most 0.9 may be leased
  const auto pinned = Pin(Range(1, 1000));
  EXPECT_TRUE(absl::IsResourceExhausted(pinned.status())) << pinned.status();
  EXPECT_EQ(harness.store->stats().leased_bytes, 0u);
  EXPECT_EQ(harness.store->stats().leases, 0u);
}

TEST_F(StoreBlocksTest, PinningNothingIsNoLease) {
  const auto pinned = Pin({1, 2});
  ASSERT_TRUE(pinned.ok());
  EXPECT_EQ(pinned->count, 0u);
  EXPECT_TRUE(pinned->token.empty());
  EXPECT_EQ(harness.store->stats().leases, 0u);
}

TEST_F(StoreBlocksTest, AClearedNamespaceIsSweptAndOthersAreNot) {
  const Namespace& other = harness.Open(TestSpec(kBlock), "other");
  harness.PutChain(ns, Range(1, 100), kBlock);
  harness.PutChain(other, Range(1, 100), kBlock);
  const MatchResult leased = harness.Match(ns, Range(1, 10), 60'000);
  harness.store->Clear(ns.index);
  ASSERT_TRUE(harness.namespaces.Flush(ns).ok());
  EXPECT_FALSE(harness.Has(ns, 1));
  EXPECT_EQ(harness.store->use(ns).blocks, 0u);
  EXPECT_TRUE(absl::IsNotFound(harness.store->CheckLease(ns, leased.lease)));
  harness.Put(ns, 1, kBlock);
  Tick(10);
  EXPECT_TRUE(harness.Has(ns, 1));
  EXPECT_EQ(harness.store->stats().used_bytes, 101 * kBlock);
  EXPECT_EQ(harness.store->use(ns).payload_bytes, kBlock);
  EXPECT_EQ(harness.store->use(other).blocks, 100u);
}

TEST_F(StoreBlocksTest, EventsTellOfCompleteBlocksAlone) {
  const Namespace& sharded = harness.Open(TestSpec(kBlock, 2), "sharded");
  harness.Put(ns, 1, kBlock);
  harness.Put(ns, 2, kBlock, 1, 1);
  harness.Put(sharded, 3, kBlock, 0, 0, 0);
  harness.Put(sharded, 3, kBlock, 0, 0, 1);
  harness.Put(sharded, 4, kBlock, 0, 0, 0);
  const std::string hashes = TestHashes({3, 4});
  harness.store->Remove(sharded, 0, HashSpan(hashes, 32));
  const auto events = Events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].hash(), TestHash(1));
  EXPECT_EQ(events[0].parent(), "");
  EXPECT_EQ(events[1].parent(), TestHash(1));
  EXPECT_EQ(events[1].depth, 1u);
  EXPECT_EQ(events[2].hash(), TestHash(3));
  EXPECT_EQ(events[2].bytes, 2 * kBlock);
  EXPECT_EQ(events[2].ns, sharded.index);
  EXPECT_EQ(events[3].kind, BlockEvent::Kind::kRemoved);
  EXPECT_EQ(events[3].hash(), TestHash(3));
  EXPECT_EQ(events[3].cause, MissCause::kRetired);
}

}  // namespace
}  // namespace quarry::server
