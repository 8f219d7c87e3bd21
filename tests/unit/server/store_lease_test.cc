// What leases promise.
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

constexpr uint64_t kCapacity = 256;

class StoreLeaseTest : public ::testing::Test {
 protected:
  static BlockStoreOptions Options() {
    BlockStoreOptions options = StoreHarness::Small(kCapacity * kBlock);
    options.max_lease_ms = 10'000;
    options.max_leased_share = 0.5;
    options.max_leases = 2000;
    return options;
  }
  void Flood(uint64_t blocks) {
    for (uint64_t i = 0; i < blocks; ++i) h_.Put(ns_, next_flood_++, kBlock);
  }

  StoreHarness h_{Options()};
  const Namespace& ns_ = h_.Open(TestSpec(kBlock));
  uint64_t next_flood_ = 1'000'000;
};

TEST_F(StoreLeaseTest, LeasedBlocksSurviveAFloodOfThreeArenas) {
  h_.PutChain(ns_, Range(1, 100), kBlock);
  const MatchResult match = h_.Match(ns_, Range(1, 100), 5000);
  ASSERT_EQ(match.lease.size(), 16u);
  EXPECT_EQ(match.lease_ms, 5000u);
  Flood(3 * kCapacity);
  for (uint64_t id = 1; id <= 100; ++id) ASSERT_TRUE(PayloadIs(h_.Read(ns_, id).slot, id)) << id;
  ASSERT_TRUE(h_.store->ReleaseLease("t", match.lease).ok());
  Flood(kCapacity);
  for (uint64_t id = 1; id <= 100; ++id) EXPECT_FALSE(h_.Has(ns_, id)) << id;
}

TEST_F(StoreLeaseTest, ReleasedBlocksAreWhereTheyWereInTheOrder) {
  h_.PutChain(ns_, Range(1, 100), kBlock);
  const MatchResult match = h_.Match(ns_, Range(1, 100), 5000);
  Flood(kCapacity);
  ASSERT_TRUE(h_.store->ReleaseLease("t", match.lease).ok());
  Flood(10);
  for (uint64_t id = 1; id <= 90; ++id) EXPECT_TRUE(h_.Has(ns_, id)) << id;
  for (uint64_t id = 91; id <= 100; ++id) EXPECT_FALSE(h_.Has(ns_, id)) << id;
}

TEST_F(StoreLeaseTest, LeaseEndsByTheClock) {
  h_.PutChain(ns_, Range(1, 10), kBlock);
  const MatchResult match = h_.Match(ns_, Range(1, 10), 1000);
  EXPECT_TRUE(h_.store->CheckLease(ns_, match.lease).ok());
  h_.clock.AdvanceMs(999);
  h_.store->Tick();
  EXPECT_TRUE(h_.store->CheckLease(ns_, match.lease).ok());
  EXPECT_EQ(h_.store->stats().leases, 1u);
  EXPECT_EQ(h_.store->stats().leased_bytes, 10 * kBlock);
  h_.clock.AdvanceMs(1);
  // Before anyone collects it.
  EXPECT_TRUE(absl::IsNotFound(h_.store->CheckLease(ns_, match.lease)));
  EXPECT_TRUE(absl::IsNotFound(h_.store->RenewLease("t", match.lease, 1000).status()));
  EXPECT_TRUE(absl::IsNotFound(h_.store->ReleaseLease("t", match.lease)));
  h_.store->Tick();
  EXPECT_EQ(h_.store->stats().leases, 0u);
  EXPECT_EQ(h_.store->stats().leased_bytes, 0u);
}

TEST_F(StoreLeaseTest, RenewedLeaseLivesOnAndIsCapped) {
  h_.PutChain(ns_, Range(1, 10), kBlock);
  const MatchResult match = h_.Match(ns_, Range(1, 10), 1000);
  h_.clock.AdvanceMs(900);
  const auto renewed = h_.store->RenewLease("t", match.lease, 99'000);
  ASSERT_TRUE(renewed.ok());
  EXPECT_EQ(*renewed, 10'000u);
  h_.clock.AdvanceMs(9'999);
  h_.store->Tick();
  Flood(2 * kCapacity);
  for (uint64_t id = 1; id <= 10; ++id) EXPECT_TRUE(h_.Has(ns_, id));
  EXPECT_TRUE(absl::IsInvalidArgument(h_.store->RenewLease("t", match.lease, 0).status()));
  h_.clock.AdvanceMs(1);
  EXPECT_TRUE(absl::IsNotFound(h_.store->CheckLease(ns_, match.lease)));
  EXPECT_EQ(h_.Match(ns_, {1}, 4'000'000'000).lease_ms, 10'000u);
}

TEST_F(StoreLeaseTest, LeaseIsOfItsTenantAndNamespaceOnly) {
  const Namespace& sibling = h_.Open(TestSpec(kBlock), "sibling");
  const Namespace& foreign = h_.Open(TestSpec(kBlock), "n", "foreign");
  h_.Put(ns_, 1, kBlock);
  const MatchResult match = h_.Match(ns_, {1}, 1000);
  EXPECT_TRUE(absl::IsNotFound(h_.store->CheckLease(sibling, match.lease)));
  EXPECT_TRUE(absl::IsNotFound(h_.store->CheckLease(foreign, match.lease)));
  EXPECT_TRUE(absl::IsNotFound(h_.store->RenewLease("foreign", match.lease, 1000).status()));
  EXPECT_TRUE(absl::IsNotFound(h_.store->ReleaseLease("foreign", match.lease)));
  for (const char* wrong : {"", "x", "0123456789abcdef"}) {
    EXPECT_TRUE(absl::IsNotFound(h_.store->CheckLease(ns_, wrong)));
    EXPECT_TRUE(absl::IsNotFound(h_.store->ReleaseLease("t", wrong)));
  }
  EXPECT_TRUE(h_.store->CheckLease(ns_, match.lease).ok());
  EXPECT_TRUE(h_.store->ReleaseLease("t", match.lease).ok());
  EXPECT_TRUE(absl::IsNotFound(h_.store->ReleaseLease("t", match.lease)));
}

TEST_F(StoreLeaseTest, OverlappingLeasesEndOneByOne) {
  h_.PutChain(ns_, Range(1, 10), kBlock);
  const MatchResult first = h_.Match(ns_, Range(1, 10), 1000);
  const MatchResult second = h_.Match(ns_, Range(1, 5), 1000);
  EXPECT_NE(first.lease, second.lease);
  EXPECT_EQ(h_.store->stats().leased_bytes, 10 * kBlock);
  ASSERT_TRUE(h_.store->ReleaseLease("t", first.lease).ok());
  EXPECT_EQ(h_.store->stats().leased_bytes, 5 * kBlock);
  Flood(2 * kCapacity);
  for (uint64_t id = 1; id <= 10; ++id) EXPECT_EQ(h_.Has(ns_, id), id <= 5) << id;
}

TEST_F(StoreLeaseTest, LeaseBeyondTheShareCoversAShorterPrefix) {
  h_.PutChain(ns_, Range(1, 100), kBlock);
  h_.PutChain(ns_, Range(1001, 100), kBlock);
  ASSERT_EQ(h_.UsableBlocks(h_.Match(ns_, Range(1, 100), 1000)), 100u);
  const MatchResult match = h_.Match(ns_, Range(1001, 100), 1000);
  EXPECT_EQ(h_.UsableBlocks(match), 28u);  // of 128 that may be leased
  EXPECT_EQ(match.usable_tokens, 28 * kTestTokens);
  EXPECT_EQ(match.lease_limit, LeaseLimit::kBytes);
  EXPECT_EQ(match.chains[0].states, std::string(100, static_cast<char>(BlockState::kDram)));
  EXPECT_EQ(h_.store->stats().leased_bytes, 128 * kBlock);
  // Leased already: costs nothing more.
  EXPECT_EQ(h_.UsableBlocks(h_.Match(ns_, Range(1, 100), 1000)), 100u);
  EXPECT_EQ(h_.UsableBlocks(h_.Match(ns_, Range(1029, 10), 1000)), 0u);
  EXPECT_EQ(h_.UsableBlocks(h_.Match(ns_, Range(1001, 100))), 100u);
  h_.clock.AdvanceMs(1000);
  EXPECT_EQ(h_.UsableBlocks(h_.Match(ns_, Range(1001, 100), 1000)), 100u);
}

TEST_F(StoreLeaseTest, ShortenedLeaseIsALegalEndOfEveryGroup) {
  ModelSpec spec = TestSpec(kBlock);
  spec.groups.push_back({GroupKind::kState, 4 * kTestTokens, 0, 1, kBlock, false});
  const Namespace& ns = h_.Open(spec, "state");
  h_.PutChain(ns, Range(1, 160), kBlock);
  for (uint64_t i = 0; i < 40; ++i) h_.Put(ns, 5000 + i, kBlock, i, 0, 0, 1);
  const std::string full = TestHashes(Range(1, 160));
  const std::string state = TestHashes(Range(5000, 40));
  const ChainQuery chains[] = {{0, 0, HashSpan(full, 32)}, {1, 0, HashSpan(state, 32)}};
  MatchQuery query;
  query.chains = chains;
  query.lease_ms = 1000;
  const MatchResult match = h_.store->Match(ns, query);
  // 124 blocks and one state; 128 and one would exceed 128.
  EXPECT_EQ(match.usable_tokens, 124 * kTestTokens);
  EXPECT_EQ(match.chains[0].usable, (BlockRange{0, 124}));
  EXPECT_EQ(match.chains[1].usable, (BlockRange{30, 31}));
  EXPECT_EQ(h_.store->stats().leased_bytes, 125 * kBlock);
}

TEST_F(StoreLeaseTest, NumberOfLeasesIsBounded) {
  BlockStoreOptions options = Options();
  options.max_leases = 3;
  StoreHarness h(options);
  const Namespace& ns = h.Open(TestSpec(kBlock));
  h.Put(ns, 1, kBlock);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(h.Match(ns, {1}, 1000).lease.empty());
  const MatchResult refused = h.Match(ns, {1}, 1000);
  EXPECT_TRUE(refused.lease.empty());
  EXPECT_EQ(refused.lease_limit, LeaseLimit::kLeases);
  EXPECT_EQ(h.UsableBlocks(refused), 0u);
  h.clock.AdvanceMs(1000);
  EXPECT_FALSE(h.Match(ns, {1}, 1000).lease.empty());
  EXPECT_EQ(h.store->stats().leases, 1u);
}

TEST_F(StoreLeaseTest, BlocksOfALeaseAreBounded) {
  BlockStoreOptions options = Options();
  options.max_lease_blocks = 10;
  StoreHarness h(options);
  const Namespace& ns = h.Open(TestSpec(kBlock));
  h.PutChain(ns, Range(1, 20), kBlock);
  const MatchResult match = h.Match(ns, Range(1, 20), 1000);
  EXPECT_EQ(h.UsableBlocks(match), 10u);
  EXPECT_EQ(match.lease_limit, LeaseLimit::kBlocks);
  EXPECT_EQ(h.store->stats().leased_blocks, 10u);
  EXPECT_EQ(h.store->stats().leased_bytes, 10 * kBlock);
  const MatchResult whole = h.Match(ns, Range(1, 10), 1000);
  EXPECT_EQ(h.UsableBlocks(whole), 10u);
  EXPECT_EQ(whole.lease_limit, LeaseLimit::kNone);
  EXPECT_EQ(h.UsableBlocks(h.Match(ns, Range(1, 20))), 20u);
}

TEST_F(StoreLeaseTest, BlocksOfAllLeasesAreBoundedEachCountedInEveryLease) {
  BlockStoreOptions options = Options();
  options.max_leased_blocks = 25;
  StoreHarness h(options);
  const Namespace& ns = h.Open(TestSpec(kBlock));
  h.PutChain(ns, Range(1, 10), kBlock);
  const MatchResult first = h.Match(ns, Range(1, 10), 1000);
  EXPECT_EQ(h.UsableBlocks(h.Match(ns, Range(1, 10), 1000)), 10u);
  const MatchResult shorter = h.Match(ns, Range(1, 10), 1000);
  EXPECT_EQ(h.UsableBlocks(shorter), 5u);
  EXPECT_EQ(shorter.lease_limit, LeaseLimit::kBlocks);
  const MatchResult refused = h.Match(ns, Range(1, 10), 1000);
  EXPECT_EQ(h.UsableBlocks(refused), 0u);
  EXPECT_TRUE(refused.lease.empty());
  EXPECT_EQ(refused.lease_limit, LeaseLimit::kBlocks);
  EXPECT_EQ(h.Put(ns, 99, kBlock, 0, 0, 0, 0, 1000), PutOutcome::kStored);  // stored, and not retained
  EXPECT_EQ(h.store->stats().leases, 3u);
  EXPECT_EQ(h.store->stats().leased_blocks, 25u);
  ASSERT_TRUE(h.store->ReleaseLease("t", first.lease).ok());
  EXPECT_EQ(h.UsableBlocks(h.Match(ns, Range(1, 10), 1000)), 10u);
  // A match that finds no room ends leases whose time is over by itself.
  h.clock.AdvanceMs(1000);
  EXPECT_EQ(h.UsableBlocks(h.Match(ns, Range(1, 10), 1000)), 10u);
  EXPECT_EQ(h.store->stats().leased_blocks, 10u);
}

TEST_F(StoreLeaseTest, WhatIsThereBeyondTheUsableIsNotLeased) {
  h_.PutChain(ns_, Range(1, 20), kBlock);
  std::vector<uint64_t> ids = Range(1, 20);
  ids[5] = 777;
  const MatchResult match = h_.Match(ns_, ids, 1000);
  EXPECT_EQ(h_.UsableBlocks(match), 5u);
  EXPECT_EQ(match.lease_limit, LeaseLimit::kNone);
  EXPECT_EQ(h_.store->stats().leased_bytes, 5 * kBlock);
  EXPECT_EQ(h_.store->stats().leased_blocks, 5u);
  ids[0] = 778;
  EXPECT_TRUE(h_.Match(ns_, ids, 1000).lease.empty());
  EXPECT_EQ(h_.store->stats().leases, 1u);
  Flood(2 * kCapacity);
  for (uint64_t id = 1; id <= 20; ++id) EXPECT_EQ(h_.Has(ns_, id), id <= 5) << id;
}

TEST_F(StoreLeaseTest, AMatchKeepsWithinItsOwnBounds) {
  h_.PutChain(ns_, Range(1, 20), kBlock);
  const auto match = [&](uint64_t least, uint64_t most) {
    return h_.MatchWith(ns_, Range(1, 20), [&](MatchQuery* query) {
      query->lease_ms = 1000;
      query->min_blocks = least;
      query->max_blocks = most;
    });
  };
  const MatchResult shorter = match(0, 7);
  EXPECT_EQ(shorter.usable_tokens, 7 * kTestTokens);
  EXPECT_EQ(shorter.first_miss, MissCause::kNone);
  EXPECT_EQ(h_.store->stats().leased_bytes, 7 * kBlock);
  EXPECT_EQ(h_.UsableBlocks(match(20, 20)), 20u);
  const MatchResult none = match(8, 7);
  EXPECT_EQ(none.usable_tokens, 0u);
  EXPECT_EQ(none.chains[0].usable, BlockRange());
  EXPECT_TRUE(none.lease.empty());
  EXPECT_EQ(match(21, UINT64_MAX).usable_tokens, 0u);
  EXPECT_EQ(h_.store->stats().leases, 2u);
}

TEST_F(StoreLeaseTest, ALeaseShortenedBelowTheLeastIsNone) {
  h_.PutChain(ns_, Range(1, 130), kBlock);  // of which 128 may be leased
  for (uint64_t least : {129, 128}) {
    const MatchResult match = h_.MatchWith(ns_, Range(1, 130), [&](MatchQuery* query) {
      query->lease_ms = 1000;
      query->min_blocks = least;
    });
    EXPECT_EQ(h_.UsableBlocks(match), least == 128 ? 128u : 0u);
    EXPECT_EQ(match.lease_limit, LeaseLimit::kBytes);
    EXPECT_EQ(h_.store->stats().leased_bytes, h_.UsableBlocks(match) * kBlock);
  }
}

TEST_F(StoreLeaseTest, PinsKeepBlocksWithoutALeaseAndBeyondItsBounds) {
  BlockStoreOptions options = Options();
  options.max_leased_share = 0;
  StoreHarness h(options);
  const Namespace& ns = h.Open(TestSpec(kBlock));
  h.PutChain(ns, Range(1, 100), kBlock);
  const auto flood = [&] {
    for (uint64_t i = 0; i < 2 * kCapacity; ++i) h.Put(ns, next_flood_++, kBlock);
  };
  {
    const MatchResult match = h.MatchWith(ns, Range(1, 100), [](MatchQuery* query) {
      query->pin = true;
      query->max_blocks = 60;
    });
    EXPECT_EQ(h.UsableBlocks(match), 60u);
    EXPECT_TRUE(match.lease.empty());
    flood();
    for (uint64_t id = 1; id <= 100; ++id) ASSERT_EQ(h.Has(ns, id), id <= 60) << id;
  }
  EXPECT_EQ(h.store->stats().leases, 0u);
  EXPECT_EQ(h.store->stats().leased_bytes, 0u);
  flood();
  for (uint64_t id = 1; id <= 100; ++id) EXPECT_FALSE(h.Has(ns, id)) << id;
}

TEST_F(StoreLeaseTest, AThousandMatchesNeverFetchedAreEvictableOnceTheirLeasesEnd) {
  h_.PutChain(ns_, Range(1, 128), kBlock);
  std::set<std::string> tokens;
  for (uint64_t i = 0; i < 1000; ++i) tokens.insert(h_.Match(ns_, Range(1, 1 + i % 128), 1000).lease);
  EXPECT_EQ(tokens.size(), 1000u);
  EXPECT_EQ(h_.store->stats().leases, 1000u);
  h_.clock.AdvanceMs(1000);
  h_.store->Tick();
  EXPECT_EQ(h_.store->stats().leased_bytes, 0u);
  Flood(kCapacity);
  for (uint64_t id = 1; id <= 128; ++id) EXPECT_FALSE(h_.Has(ns_, id)) << id;
}

TEST_F(StoreLeaseTest, ArenaFullOfLeasedBlocksRefusesPutsAndLosesNothing) {
  BlockStoreOptions options = Options();
  options.max_leased_share = 1;
  StoreHarness h(options);
  const Namespace& ns = h.Open(TestSpec(kBlock));
  h.PutChain(ns, Range(1, kCapacity), kBlock);
  const MatchResult match = h.Match(ns, Range(1, kCapacity), 1000);
  ASSERT_EQ(h.UsableBlocks(match), kCapacity);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(h.Offer(ns, 1000 + i, kBlock).reason, RefusalReason::kNoSpace);
  EXPECT_EQ(h.Read(ns, 1000).miss, MissCause::kRefused);
  for (uint64_t id = 1; id <= kCapacity; ++id) ASSERT_TRUE(h.Has(ns, id));
  EXPECT_EQ(h.store->stats().refusals[static_cast<int>(RefusalReason::kNoSpace)], 10u);
  // An allocation ends leases whose time is over by itself.
  h.clock.AdvanceMs(1000);
  EXPECT_EQ(h.Put(ns, 1000, kBlock), PutOutcome::kStored);
  EXPECT_FALSE(h.Has(ns, kCapacity));
}

TEST_F(StoreLeaseTest, RetainedPutsStayForTheirTime) {
  h_.Put(ns_, 1, kBlock, 0, 0, 0, 0, 1000);
  EXPECT_EQ(h_.store->stats().leases, 1u);
  Flood(2 * kCapacity);
  EXPECT_TRUE(h_.Has(ns_, 1));
  h_.clock.AdvanceMs(1000);
  Flood(2 * kCapacity);
  EXPECT_FALSE(h_.Has(ns_, 1));
  EXPECT_EQ(h_.store->stats().leased_bytes, 0u);
}

TEST_F(StoreLeaseTest, RetainedPutsAreCappedAsLeasesAre) {
  for (uint64_t id = 1; id <= 200; ++id) {
    ASSERT_EQ(h_.Put(ns_, id, kBlock, 0, 0, 0, 0, 100'000'000), PutOutcome::kStored);
  }
  EXPECT_EQ(h_.store->stats().leased_bytes, 128 * kBlock);
  h_.clock.AdvanceMs(10'000);
  h_.store->Tick();
  EXPECT_EQ(h_.store->stats().leases, 0u);
}

TEST_F(StoreLeaseTest, ShardsOfARetainedBlockAreAllCounted) {
  const Namespace& ns = h_.Open(TestSpec(kBlock, 3), "sharded");
  for (uint32_t shard = 0; shard < 3; ++shard) h_.Put(ns, 1, kBlock, 0, 0, shard, 0, 1000);
  EXPECT_EQ(h_.store->stats().leased_bytes, 3 * kBlock);
  h_.clock.AdvanceMs(1000);
  h_.store->Tick();
  EXPECT_EQ(h_.store->stats().leased_bytes, 0u);
}

TEST_F(StoreLeaseTest, CorruptBlockGoesEvenWhenLeased) {
  h_.PutChain(ns_, Range(1, 3), kBlock);
  const MatchResult match = h_.Match(ns_, Range(1, 3), 1000);
  h_.store->DropCorrupt(ns_, 0, TestHash(2));
  EXPECT_EQ(h_.Read(ns_, 2).miss, MissCause::kCorrupt);
  EXPECT_EQ(h_.store->stats().leased_bytes, 2 * kBlock);
  EXPECT_EQ(h_.Put(ns_, 2, kBlock, 1, 1), PutOutcome::kStored);  // another copy, not leased
  EXPECT_EQ(h_.store->stats().leased_bytes, 2 * kBlock);
  EXPECT_TRUE(h_.store->ReleaseLease("t", match.lease).ok());
  EXPECT_EQ(h_.store->stats().leased_bytes, 0u);
  EXPECT_TRUE(h_.Has(ns_, 2));
}

}  // namespace
}  // namespace quarry::server
