// What the block store promises about puts, reads and matches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

using ::testing::HasSubstr;

constexpr auto kDram = static_cast<char>(BlockState::kDram);
constexpr auto kAbsent = static_cast<char>(BlockState::kAbsent);

class StoreTest : public ::testing::Test {
 protected:
  StoreHarness h_{StoreHarness::Small(kArenaBytes)};
  const Namespace& ns_ = h_.Open(TestSpec(kBlock));
};

TEST_F(StoreTest, ReadsWhatWasPut) {
  EXPECT_EQ(h_.Put(ns_, 1, kBlock), PutOutcome::kStored);
  const ReadResult read = h_.Read(ns_, 1);
  ASSERT_TRUE(read.slot);
  EXPECT_TRUE(PayloadIs(read.slot, 1));
  EXPECT_EQ(read.miss, MissCause::kNone);
  EXPECT_EQ(h_.Put(ns_, 1, kBlock), PutOutcome::kAlreadyThere);
}

TEST_F(StoreTest, NamespacesAndGroupsDoNotMix) {
  const Namespace& other = h_.Open(TestSpec(kBlock), "other");
  h_.Put(ns_, 1, kBlock);
  EXPECT_FALSE(h_.Has(other, 1));
  EXPECT_EQ(h_.Put(other, 1, kBlock), PutOutcome::kStored);
}

TEST_F(StoreTest, MatchReportsEachBlockAndTheUsablePrefix) {
  h_.PutChain(ns_, {1, 2, 3}, kBlock);
  h_.Put(ns_, 5, kBlock, 4, 4);
  const MatchResult match = h_.Match(ns_, {1, 2, 3, 4, 5});
  EXPECT_EQ(match.chains[0].states, (std::string{kDram, kDram, kDram, kAbsent, kDram}));
  EXPECT_EQ(match.chains[0].usable, (BlockRange{0, 3}));
  EXPECT_EQ(match.usable_tokens, 3 * kTestTokens);
  EXPECT_EQ(match.first_miss, MissCause::kNeverStored);
  EXPECT_EQ(match.first_miss_block, 3u);
  EXPECT_TRUE(match.lease.empty());
  EXPECT_EQ(h_.store->stats().match_hashes, 5u);
  EXPECT_EQ(h_.store->stats().match_hits, 3u);
}

TEST_F(StoreTest, MatchBeginsWhereTheLocalHitEnds) {
  h_.PutChain(ns_, {1, 2, 3, 4}, kBlock);
  const MatchResult match = h_.Match(ns_, {3, 4}, 0, true, 2);
  EXPECT_EQ(match.chains[0].usable, (BlockRange{2, 4}));
  EXPECT_EQ(match.usable_tokens, 4 * kTestTokens);
  EXPECT_EQ(match.first_miss, MissCause::kNone);
}

TEST_F(StoreTest, AbandonedPutGivesMemoryBackAndCanBeOfferedAgain) {
  {
    OfferResult offer = h_.Offer(ns_, 1, kBlock);
    ASSERT_TRUE(offer.ticket);
    EXPECT_EQ(h_.store->stats().used_bytes, kBlock);
    EXPECT_EQ(h_.store->stats().in_flight_puts, 1u);
  }
  const StoreStats stats = h_.store->stats();
  EXPECT_EQ(stats.used_bytes, 0u);
  EXPECT_EQ(stats.in_flight_puts, 0u);
  EXPECT_EQ(stats.blocks, 0u);
  EXPECT_EQ(h_.Read(ns_, 1).miss, MissCause::kNeverStored);
  EXPECT_EQ(h_.Put(ns_, 1, kBlock), PutOutcome::kStored);
}

TEST_F(StoreTest, PutUnderWayIsInFlightForEveryoneElse) {
  OfferResult offer = h_.Offer(ns_, 1, kBlock);
  EXPECT_EQ(h_.Read(ns_, 1).miss, MissCause::kInFlight);
  EXPECT_EQ(h_.Match(ns_, {1}).first_miss, MissCause::kInFlight);
  EXPECT_EQ(h_.Match(ns_, {1}).chains[0].states[0], static_cast<char>(BlockState::kInFlight));
  const OfferResult second = h_.Offer(ns_, 1, kBlock);
  EXPECT_EQ(second.outcome, PutOutcome::kRefused);
  EXPECT_EQ(second.reason, RefusalReason::kInFlight);
  FillPayload(offer.ticket.slot(), 1, kBlock);
  offer.ticket.Publish();
  EXPECT_FALSE(offer.ticket);
  EXPECT_TRUE(h_.Has(ns_, 1));
}

TEST_F(StoreTest, WhoWaitsForAPutHearsOnceHoweverItEnds) {
  const std::string hash = TestHash(1);
  int ended = 0;
  const auto wait = [&] { return h_.store->WaitForPut(ns_, 0, 0, hash, [&] { ++ended; }); };
  EXPECT_FALSE(wait());
  {
    OfferResult offer = h_.Offer(ns_, 1, kBlock);
    EXPECT_TRUE(wait());
    EXPECT_TRUE(wait());
    EXPECT_EQ(ended, 0);
  }
  EXPECT_EQ(ended, 2);
  OfferResult offer = h_.Offer(ns_, 1, kBlock);
  EXPECT_TRUE(wait());
  offer.ticket.Publish();
  EXPECT_EQ(ended, 3);
  EXPECT_FALSE(wait());
  EXPECT_EQ(ended, 3);
}

TEST_F(StoreTest, WaiterMayCallTheStore) {
  const std::string hash = TestHash(1);
  OfferResult offer = h_.Offer(ns_, 1, kBlock);
  bool there = false;
  ASSERT_TRUE(h_.store->WaitForPut(ns_, 0, 0, hash, [&] { there = h_.Has(ns_, 1); }));
  FillPayload(offer.ticket.slot(), 1, kBlock);
  offer.ticket.Publish();
  EXPECT_TRUE(there);
}

TEST_F(StoreTest, RefusedPutIsRemembered) {
  OfferResult offer = h_.Offer(ns_, 1, kBlock);
  offer.ticket.Refuse(RefusalReason::kChecksum);
  EXPECT_EQ(h_.Read(ns_, 1).miss, MissCause::kRefused);
  EXPECT_EQ(h_.store->stats().refusals[static_cast<int>(RefusalReason::kChecksum)], 1u);
  EXPECT_EQ(h_.store->stats().used_bytes, 0u);
  EXPECT_EQ(h_.Put(ns_, 1, kBlock), PutOutcome::kStored);
}

TEST_F(StoreTest, CorruptBlockGoesAndLookupsSaySo) {
  h_.Put(ns_, 1, kBlock);
  h_.store->DropCorrupt(ns_, 0, TestHash(1));
  EXPECT_EQ(h_.Read(ns_, 1).miss, MissCause::kCorrupt);
  EXPECT_EQ(h_.Match(ns_, {1}).first_miss, MissCause::kCorrupt);
  EXPECT_EQ(h_.store->stats().used_bytes, 0u);
  EXPECT_EQ(h_.Put(ns_, 1, kBlock), PutOutcome::kStored);
}

TEST_F(StoreTest, BlockDroppedWhileAShardIsPutTakesTheShardWithIt) {
  const Namespace& sharded = h_.Open(TestSpec(kBlock, 2), "sharded");
  h_.Put(sharded, 1, kBlock, 0, 0, 0);
  OfferResult offer = h_.Offer(sharded, 1, kBlock, 0, 0, 1);
  h_.store->DropCorrupt(sharded, 0, TestHash(1));
  offer.ticket.Publish();
  EXPECT_EQ(h_.Read(sharded, 1, 1).miss, MissCause::kCorrupt);
  EXPECT_EQ(h_.store->stats().used_bytes, 0u);
  EXPECT_EQ(h_.store->stats().blocks, 0u);
}

TEST_F(StoreTest, ReadersKeepTheBytesOfABlockThatIsGone) {
  h_.Put(ns_, 1, kBlock);
  SlotRef slot = h_.Read(ns_, 1).slot;
  h_.store->DropCorrupt(ns_, 0, TestHash(1));
  EXPECT_FALSE(h_.Has(ns_, 1));
  for (uint64_t id = 100; id < 1000; ++id) h_.Put(ns_, id, kBlock);
  EXPECT_TRUE(PayloadIs(slot, 1));
  const uint64_t used = h_.store->stats().used_bytes;
  slot = SlotRef();
  EXPECT_EQ(h_.store->stats().used_bytes, used - kBlock);
}

TEST_F(StoreTest, BlockIsCompleteWhenAllShardsAreThere) {
  const Namespace& sharded = h_.Open(TestSpec(kBlock, 3), "sharded");
  h_.Put(sharded, 1, kBlock, 0, 0, 0);
  h_.Put(sharded, 1, kBlock, 0, 0, 2);
  MatchResult match = h_.Match(sharded, {1});
  EXPECT_EQ(match.chains[0].states[0], static_cast<char>(BlockState::kIncomplete));
  EXPECT_EQ(match.first_miss, MissCause::kIncomplete);
  EXPECT_EQ(h_.UsableBlocks(match), 0u);
  EXPECT_TRUE(h_.Read(sharded, 1, 2).slot);
  EXPECT_EQ(h_.Read(sharded, 1, 1).miss, MissCause::kIncomplete);
  EXPECT_EQ(h_.store->stats().blocks, 1u);
  EXPECT_EQ(h_.store->stats().complete_blocks, 0u);
  h_.Put(sharded, 1, kBlock, 0, 0, 1);
  EXPECT_EQ(h_.UsableBlocks(h_.Match(sharded, {1})), 1u);
  EXPECT_EQ(h_.store->stats().complete_blocks, 1u);
}

TEST_F(StoreTest, GroupsMustAgreeOnTheEnd) {
  ModelSpec spec = TestSpec(kBlock);
  spec.groups.push_back({GroupKind::kWindow, 2 * kTestTokens, 2 * kTestTokens, 1, kBlock, false});
  const Namespace& ns = h_.Open(spec, "groups");
  h_.PutChain(ns, {1, 2, 3, 4, 5}, kBlock);
  h_.Put(ns, 11, kBlock, 0, 0, 0, 1);
  const std::string full = TestHashes({1, 2, 3, 4, 5, 6});
  const std::string window = TestHashes({11, 12, 13});
  const ChainQuery chains[] = {{0, 0, HashSpan(full, 32)}, {1, 0, HashSpan(window, 32)}};
  MatchQuery query;
  query.chains = chains;
  query.lease_ms = 1000;
  MatchResult match = h_.store->Match(ns, query);
  EXPECT_EQ(match.usable_tokens, 2 * kTestTokens);
  EXPECT_EQ(match.chains[0].usable, (BlockRange{0, 2}));
  EXPECT_EQ(match.chains[1].usable, (BlockRange{0, 1}));
  EXPECT_EQ(match.first_miss, MissCause::kNeverStored);
  EXPECT_EQ(match.first_miss_chain, 1u);
  EXPECT_EQ(match.first_miss_block, 1u);
  EXPECT_EQ(h_.store->stats().leased_bytes, 3 * kBlock);
  h_.Put(ns, 12, kBlock, 1, 11, 0, 1);
  match = h_.store->Match(ns, query);
  EXPECT_EQ(match.chains[0].usable, (BlockRange{0, 4}));
  EXPECT_EQ(match.chains[1].usable, (BlockRange{1, 2}));
  EXPECT_EQ(match.first_miss_chain, 1u);
  EXPECT_EQ(match.first_miss_block, 2u);
}

TEST_F(StoreTest, ConcurrentPutsOfOneBlockStoreItOnceAndTellEachTheTruth) {
  constexpr int kThreads = 8;
  for (uint64_t id = 1; id <= 50; ++id) {
    std::atomic<int> stored{0};
    std::atomic<int> there{0};
    std::atomic<int> in_flight{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        OfferResult offer = h_.Offer(ns_, id, kBlock);
        if (offer.ticket) {
          FillPayload(offer.ticket.slot(), id, kBlock);
          offer.ticket.Publish();
          ++stored;
        } else if (offer.outcome == PutOutcome::kAlreadyThere) {
          there += h_.Has(ns_, id);
        } else {
          in_flight += offer.reason == RefusalReason::kInFlight;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(stored, 1);
    EXPECT_EQ(stored + there + in_flight, kThreads);
    EXPECT_TRUE(PayloadIs(h_.Read(ns_, id).slot, id));
  }
  EXPECT_EQ(h_.store->stats().stored_shards, 50u);
}

TEST_F(StoreTest, DrainingStoreRefusesAndStillServes) {
  h_.Put(ns_, 1, kBlock);
  h_.store->Drain();
  const OfferResult offer = h_.Offer(ns_, 2, kBlock);
  EXPECT_EQ(offer.outcome, PutOutcome::kRefused);
  EXPECT_EQ(offer.reason, RefusalReason::kDraining);
  EXPECT_TRUE(h_.Has(ns_, 1));
}

TEST_F(StoreTest, ShardLargerThanASlabIsRefused) {
  const Namespace& large = h_.Open(TestSpec(1 << 20), "large");
  const OfferResult offer = h_.Offer(large, 1, 65 << 10);
  EXPECT_EQ(offer.reason, RefusalReason::kNoSpace);
  EXPECT_EQ(h_.Read(large, 1).miss, MissCause::kRefused);
}

TEST_F(StoreTest, TenantsAreAccountedFromTheReservationOn) {
  const Namespace& other = h_.Open(TestSpec(kBlock), "n", "other");
  h_.Put(ns_, 1, kBlock);
  h_.Put(other, 1, kBlock);
  OfferResult offer = h_.Offer(other, 2, 2 * kBlock);
  using Usage = std::vector<std::pair<std::string, uint64_t>>;
  EXPECT_EQ(h_.store->tenant_bytes(), (Usage{{"t", kBlock}, {"other", 3 * kBlock}}));
  offer.ticket.Refuse(RefusalReason::kCancelled);
  h_.store->DropCorrupt(ns_, 0, TestHash(1));
  h_.store->DropCorrupt(other, 0, TestHash(1));
  EXPECT_EQ(h_.store->tenant_bytes(), (Usage{{"t", 0}, {"other", 0}}));
}

TEST_F(StoreTest, HashesOfEveryLengthWork) {
  for (uint32_t bytes : {16u, 31u, 32u, 33u, 48u, 64u}) {
    const Namespace& ns = h_.Open(TestSpec(kBlock, 1, bytes), std::to_string(bytes));
    h_.PutChain(ns, {1, 2, 3}, kBlock);
    EXPECT_EQ(h_.UsableBlocks(h_.Match(ns, {1, 2, 3})), 3u) << bytes;
    // Differs in the last byte only.
    std::string hash = TestHash(1, bytes);
    hash.back() = static_cast<char>(hash.back() ^ 1);
    std::vector<ReadResult> results;
    h_.store->Read(ns, 0, 0, HashSpan(hash, bytes), &results);
    EXPECT_FALSE(results[0].slot) << bytes;
  }
}

TEST_F(StoreTest, MissesAreCountedByCause) {
  h_.Read(ns_, 1);
  h_.Match(ns_, {1, 2});
  h_.Put(ns_, 1, kBlock);
  h_.store->DropCorrupt(ns_, 0, TestHash(1));
  h_.Read(ns_, 1);
  const StoreStats stats = h_.store->stats();
  EXPECT_EQ(stats.misses[static_cast<int>(MissCause::kNeverStored)], 2u);
  EXPECT_EQ(stats.misses[static_cast<int>(MissCause::kCorrupt)], 1u);
}

TEST(StoreOptionsTest, BadOptionsAreNamed) {
  BlockStoreOptions options = StoreHarness::Small(kArenaBytes);
  options.max_leased_share = 1.5;
  EXPECT_THAT(std::string(BlockStore::Create(options, Clock::Real()).status().message()),
              HasSubstr("max_leased_share"));
  options = StoreHarness::Small(kArenaBytes);
  options.index_shards = 0;
  EXPECT_THAT(std::string(BlockStore::Create(options, Clock::Real()).status().message()), HasSubstr("index_shards"));
  options.arena_bytes = 0;
  EXPECT_THAT(std::string(BlockStore::Create(options, Clock::Real()).status().message()), HasSubstr("arena_bytes"));
}

}  // namespace
}  // namespace quarry::server
