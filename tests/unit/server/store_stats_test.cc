// Counters of the store that only operators read: each counts its event, and no other.
#include <gtest/gtest.h>

#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

TEST(StoreStatsTest, LeasesAreCountedByHowTheyBeginAndEnd) {
  StoreHarness h(StoreHarness::Small(1 << 20));
  const Namespace& ns = h.Open(TestSpec(kBlock));
  h.PutChain(ns, {1, 2, 3}, kBlock);
  const MatchResult released = h.Match(ns, {1, 2, 3}, 1000);
  ASSERT_TRUE(h.store->RenewLease("t", released.lease, 500).ok());
  ASSERT_TRUE(h.store->RenewLease("t", released.lease, 500).ok());
  ASSERT_TRUE(h.store->ReleaseLease("t", released.lease).ok());
  h.Match(ns, {1}, 1000);
  h.Match(ns, {9}, 1000);  // nothing to lease
  h.Put(ns, 4, kBlock, 0, 0, 0, 0, /*retain_ms=*/1000);
  h.clock.AdvanceMs(1000);
  h.store->Tick();
  const LeaseTable::Counts counts = h.store->stats().lease_counts;
  EXPECT_EQ(counts.granted, 2u);
  EXPECT_EQ(counts.retained, 1u);
  EXPECT_EQ(counts.renewed, 2u);
  EXPECT_EQ(counts.released, 1u);
  EXPECT_EQ(counts.expired, 2u);
}

TEST(StoreStatsTest, LeasesCutShortAreCountedByTheBound) {
  BlockStoreOptions options = StoreHarness::Small(1 << 20);
  options.max_leases = 2;
  options.max_lease_blocks = 2;
  options.max_leased_blocks = 1000;
  options.max_leased_share = 0.5;
  StoreHarness h(options);
  const Namespace& ns = h.Open(TestSpec(kBlock));
  h.PutChain(ns, {1, 2, 3}, kBlock);
  h.Match(ns, {1, 2, 3}, 1000);  // a block too many
  h.Match(ns, {1}, 1000);
  h.Match(ns, {1}, 1000);  // a lease too many
  const StoreStats stats = h.store->stats();
  EXPECT_EQ(stats.lease_limits[static_cast<int>(LeaseLimit::kBlocks)], 1u);
  EXPECT_EQ(stats.lease_limits[static_cast<int>(LeaseLimit::kLeases)], 1u);
  EXPECT_EQ(stats.lease_limits[static_cast<int>(LeaseLimit::kBytes)], 0u);
  EXPECT_EQ(stats.max_leases, 2u);
  EXPECT_EQ(stats.max_leased_blocks, 1000u);
  EXPECT_EQ(stats.max_leased_bytes, 512u << 10);
}

TEST(StoreStatsTest, EvictionsForASlabAreToldFromThoseForSpace) {
  StoreHarness h(StoreHarness::Small(256 << 10));  // 4 slabs of 16 blocks
  const Namespace& ns = h.Open(TestSpec(64 << 10));
  EXPECT_EQ(h.store->stats().free_slabs, 4u);
  for (uint64_t id = 1; id <= 65; ++id) ASSERT_EQ(h.Put(ns, id, kBlock), PutOutcome::kStored);
  EXPECT_EQ(h.store->stats().evicted_blocks, 1u);
  EXPECT_EQ(h.store->stats().slab_evicted_blocks, 0u);
  EXPECT_EQ(h.store->stats().free_slabs, 0u);
  ASSERT_EQ(h.Put(ns, 100, 64 << 10), PutOutcome::kStored);
  const StoreStats stats = h.store->stats();
  EXPECT_EQ(stats.evicted_blocks, 17u);
  EXPECT_EQ(stats.slab_evicted_blocks, 16u);
  EXPECT_EQ(stats.slab_evicted_bytes, 16 * kBlock);
  EXPECT_EQ(stats.corrupt_blocks, 0u);
}

TEST(StoreStatsTest, CorruptBlocksAreNotCountedAsEvicted) {
  StoreHarness h(StoreHarness::Small(256 << 10));
  const Namespace& ns = h.Open(TestSpec(kBlock));
  h.Put(ns, 1, kBlock);
  h.store->DropCorrupt(ns, 0, TestHash(1));
  h.store->DropCorrupt(ns, 0, TestHash(1));  // gone already
  EXPECT_EQ(h.store->stats().corrupt_blocks, 1u);
  EXPECT_EQ(h.store->stats().evicted_blocks, 0u);
}

}  // namespace
}  // namespace quarry::server
