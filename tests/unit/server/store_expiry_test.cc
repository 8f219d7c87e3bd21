// Namespaces with a time to live: from its end on nobody finds their blocks.
#include <algorithm>

#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

constexpr uint64_t kTtlMs = 10'000;
// No block is found longer than its time, but it may be lost so much earlier.
constexpr int64_t kSlackMs = 2 * BlockStore::kAgeUnitMs;

class StoreExpiryTest : public ::testing::Test {
 protected:
  StoreExpiryTest() { EXPECT_TRUE(harness.namespaces.SetTtl(ns, kTtlMs).ok()); }

  uint64_t UsableBlocks(const std::vector<uint64_t>& ids) { return harness.Match(ns, ids).usable_tokens / kTestTokens; }
  ReadResult Read(uint64_t id) {
    const std::string hash = TestHash(id);
    std::vector<ReadResult> results;
    harness.store->Read(ns, 0, 0, HashSpan(hash, 32), &results);
    return std::move(results[0]);
  }
  BlockInfo Lookup(uint64_t id) {
    const std::string hash = TestHash(id);
    return harness.store->Lookup(ns, 0, HashSpan(hash, 32))[0];
  }
  StoreStats stats() const { return harness.store->stats(); }

  StoreHarness harness{StoreHarness::Small(4 << 20)};
  const Namespace& ns = harness.Open(TestSpec(kBlock));
};

TEST_F(StoreExpiryTest, ABlockIsFoundUntilItsTimeIsOver) {
  harness.PutChain(ns, {1, 2}, kBlock);
  harness.clock.AdvanceMs(kTtlMs - kSlackMs);
  EXPECT_EQ(UsableBlocks({1, 2}), 2u);
  EXPECT_EQ(Lookup(1).state, BlockState::kDram);
  EXPECT_NEAR(static_cast<double>(Lookup(1).age_ms), kTtlMs - kSlackMs, BlockStore::kAgeUnitMs);

  harness.clock.AdvanceMs(kSlackMs);
  EXPECT_EQ(Lookup(1).miss, MissCause::kExpired);
  EXPECT_TRUE(harness.store->List(ns, 0, 10).blocks.empty());
  EXPECT_EQ(Read(2).miss, MissCause::kExpired);
  const MatchResult match = harness.Match(ns, {1, 2});
  EXPECT_EQ(match.usable_tokens, 0u);
  EXPECT_EQ(match.first_miss, MissCause::kExpired);
  EXPECT_EQ(match.chains[0].states, std::string(2, static_cast<char>(BlockState::kAbsent)));
}

TEST_F(StoreExpiryTest, UseDoesNotProlong) {
  harness.Put(ns, 1, kBlock);
  for (uint64_t ms = 0; ms < kTtlMs; ms += kTtlMs / 10) {
    harness.clock.AdvanceMs(kTtlMs / 10);
    harness.Match(ns, {1});
    harness.Put(ns, 1, kBlock);
    const std::string hash = TestHash(1);
    harness.store->Touch(ns, 0, HashSpan(hash, 32));
  }
  // The puts in between found it there; only the one that came behind its end stored it anew.
  EXPECT_EQ(stats().stored_shards, 2u);
}

TEST_F(StoreExpiryTest, WhatIsLeasedStaysReadableButIsNotFound) {
  harness.Put(ns, 1, kBlock);
  harness.clock.AdvanceMs(kTtlMs - 1000);
  const MatchResult leased = harness.Match(ns, {1}, 5000);
  ASSERT_FALSE(leased.lease.empty());
  harness.clock.AdvanceMs(2000);
  EXPECT_TRUE(PayloadIs(Read(1).slot, 1));
  EXPECT_EQ(harness.Match(ns, {1}).first_miss, MissCause::kExpired);
  harness.clock.AdvanceMs(5000);
  harness.store->Tick();
  EXPECT_EQ(Read(1).miss, MissCause::kExpired);
  EXPECT_EQ(stats().used_bytes, 0u);
}

TEST_F(StoreExpiryTest, ASweepGivesTheMemoryBackAndTellsWatchers) {
  const Namespace& lasting = harness.Open(TestSpec(kBlock), "lasting");
  harness.PutChain(ns, Range(1, 100), kBlock);
  harness.PutChain(lasting, Range(1, 10), kBlock);
  harness.store->ExpectExpiry();
  harness.clock.AdvanceMs(kTtlMs / 2);
  harness.store->Tick();
  EXPECT_EQ(stats().blocks, 110u);
  harness.clock.AdvanceMs(kTtlMs / 2);
  for (int i = 0; i < 3; ++i) harness.store->Tick();
  EXPECT_EQ(stats().blocks, 10u);
  EXPECT_EQ(stats().expired_blocks, 100u);
  EXPECT_EQ(stats().evicted_blocks, 0u);
  EXPECT_EQ(harness.store->use(ns).blocks, 0u);
  EXPECT_EQ(harness.Match(lasting, Range(1, 10)).usable_tokens, 10 * kTestTokens);
  std::vector<BlockEvent> events;
  harness.store->events().Read(0, 1000, &events);
  EXPECT_EQ(
      std::count_if(events.begin(), events.end(), [](const BlockEvent& e) { return e.cause == MissCause::kExpired; }),
      100);
}

TEST_F(StoreExpiryTest, WhatIsPutAgainLivesAnew) {
  harness.Put(ns, 1, kBlock);
  harness.clock.AdvanceMs(kTtlMs);
  EXPECT_EQ(harness.Put(ns, 1, kBlock), PutOutcome::kStored);
  harness.clock.AdvanceMs(kTtlMs - kSlackMs);
  EXPECT_EQ(UsableBlocks({1}), 1u);
  harness.clock.AdvanceMs(kSlackMs);
  EXPECT_EQ(UsableBlocks({1}), 0u);
}

TEST_F(StoreExpiryTest, WhatIsOfferedAgainWhileSomeoneHoldsItLivesAnew) {
  harness.Put(ns, 1, kBlock);
  harness.clock.AdvanceMs(kTtlMs - 1000);
  const MatchResult leased = harness.Match(ns, {1}, 5000);
  harness.clock.AdvanceMs(2000);
  EXPECT_EQ(harness.Put(ns, 1, kBlock), PutOutcome::kAlreadyThere);
  EXPECT_EQ(UsableBlocks({1}), 1u);
  EXPECT_TRUE(PayloadIs(Read(1).slot, 1));
}

TEST_F(StoreExpiryTest, AFirstPutUnderWayHasNoAge) {
  OfferResult offer = harness.Offer(ns, 1, kBlock);
  ASSERT_TRUE(offer.ticket);
  harness.clock.AdvanceMs(2 * kTtlMs);
  EXPECT_EQ(Lookup(1).state, BlockState::kInFlight);
  FillPayload(offer.ticket.slot(), 1, kBlock);
  offer.ticket.Publish();
  EXPECT_EQ(UsableBlocks({1}), 1u);
}

TEST_F(StoreExpiryTest, ATimeSetLaterHoldsForWhatIsThere) {
  const Namespace& other = harness.Open(TestSpec(kBlock), "other");
  harness.Put(other, 1, kBlock);
  harness.clock.AdvanceMs(kTtlMs);
  EXPECT_EQ(harness.Match(other, {1}).usable_tokens, kTestTokens);
  ASSERT_TRUE(harness.namespaces.SetTtl(other, kTtlMs / 2).ok());
  EXPECT_EQ(harness.Match(other, {1}).first_miss, MissCause::kExpired);
  ASSERT_TRUE(harness.namespaces.SetTtl(ns, 0).ok());
  harness.Put(ns, 1, kBlock);
  harness.clock.AdvanceMs(100 * static_cast<int64_t>(kTtlMs));
  EXPECT_EQ(UsableBlocks({1}), 1u);
}

TEST_F(StoreExpiryTest, WhatIsOverCannotBePinned) {
  harness.Put(ns, 1, kBlock);
  harness.clock.AdvanceMs(kTtlMs);
  const std::string hash = TestHash(1);
  EXPECT_EQ(harness.store->Pin(ns, 0, HashSpan(hash, 32))->count, 0u);
}

TEST(NamespaceTtlTest, BoundsAreNamedAndTheFirstOpeningDecides) {
  NamespaceRegistry registry;
  for (const uint64_t bad : {uint64_t{1}, kMinTtlMs - 1, kMaxTtlMs + 1}) {
    const absl::Status status = registry.Open("t", "n", TestSpec(1), false, bad).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_NE(status.message().find("ttl_ms: " + std::to_string(bad)), std::string::npos) << status;
  }
  const Namespace* ns = registry.Open("t", "n", TestSpec(1), false, kMinTtlMs)->ns;
  EXPECT_EQ(registry.Open("t", "n", TestSpec(1), false, kMaxTtlMs)->ns, ns);
  EXPECT_EQ(ns->ttl_ms, kMinTtlMs);
  EXPECT_TRUE(absl::IsInvalidArgument(registry.SetTtl(*ns, 1)));
  EXPECT_TRUE(registry.Flush(*ns).ok());
  EXPECT_TRUE(registry.SetTtl(*ns, 0).ok());
  EXPECT_EQ(ns->ttl_ms, 0u);
  EXPECT_TRUE(registry.Retire(*ns).ok());
  EXPECT_TRUE(absl::IsNotFound(registry.SetTtl(*ns, kMaxTtlMs)));
}

}  // namespace
}  // namespace quarry::server
