// A small arena and more than fits: what is leased stays, what is not makes room, and who
// is slow pays for it alone.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/integration/relay.h"

namespace quarry::testing {
namespace {

constexpr size_t kShard = 256 << 10;
constexpr size_t kArena = 64 << 20;  // of 128 MiB
constexpr size_t kArenaBlocks = kArena / kShard;
constexpr size_t kBatch = 32;
constexpr uint32_t kLongMs = 60'000;
constexpr uint64_t kSessionBytesInFlight = 8 << 20;

class ClientPressureTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(peer_.IsIdle());
    peer_.Leave();
    EXPECT_EQ(server_.Stop(), 0);
  }
  // Blocks from first_id on, in chains of kBatch; stops at the first refusal.
  absl::Status PutBlocks(uint64_t first_id, size_t count) {
    for (size_t done = 0; done < count; done += kBatch) {
      batch_.MoveTo(first_id + done);
      if (absl::Status status = batch_.Put(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
  ::testing::AssertionResult AllComeBack(uint64_t first_id, size_t count, const std::vector<Lease>& leases) {
    for (size_t done = 0; done < count; done += kBatch) {
      batch_.MoveTo(first_id + done);
      if (auto comes_back = batch_.ComesBack({.lease = leases[done / kBatch]}); !comes_back) return comes_back;
    }
    return ::testing::AssertionSuccess();
  }

  PrivateServer server_{"128MiB"};
  Peer peer_{server_.address(), PlainSpec(kShard)};
  Batch batch_{peer_, 0, kBatch};
};

TEST_F(ClientPressureTest, AfterAFloodEveryByteIsRightOrABlockSaidToBeEvicted) {
  ASSERT_TRUE(PutBlocks(0, 3 * kArenaBlocks).ok());
  size_t hits = 0;
  for (uint64_t id = 0; id < 3 * kArenaBlocks; id += kBatch) {
    batch_.MoveTo(id);
    const auto got = batch_.Get();
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < kBatch; ++i) {
      ASSERT_TRUE(got->items[i].status.ok());
      if (got->items[i].miss == MissCause::kNone) {
        EXPECT_TRUE(batch_.Holds(i)) << id + i;
        ++hits;
      } else {
        EXPECT_EQ(got->items[i].miss, MissCause::kEvicted);
        EXPECT_TRUE(batch_.buffers().Untouched(i)) << id + i;
      }
    }
  }
  EXPECT_GE(hits, kArenaBlocks * 9 / 10);
  EXPECT_LE(hits, kArenaBlocks);
}

TEST_F(ClientPressureTest, AnArenaFullOfLeasedBlocksRefusesAndWorksAgainOnceTheyAreReleased) {
  std::vector<Lease> leases;
  size_t leased = 0;
  for (; leased < kArenaBlocks; leased += kBatch) {
    batch_.MoveTo(leased);
    ASSERT_TRUE(batch_.Put().ok());
    const auto match = batch_.Match(kLongMs);
    ASSERT_TRUE(match.ok()) << match.status();
    // Leases may pin most of the arena, not all of it.
    if (match->usable_tokens < kBatch * 16) {
      if (match->lease) leases.push_back(match->lease);
      break;
    }
    leases.push_back(match->lease);
  }
  EXPECT_GE(leased, kArenaBlocks * 8 / 10);
  // What a flood may still take are the slots that could not be leased. A put of more at
  // once than those, whose bytes do not come, leaves nothing for others.
  Relay relay(server_.address());
  Peer stalled(relay.address(), PlainSpec(kShard));
  Batch hoard(stalled, 500'000, kBatch);
  CompletionQueue queue;
  relay.Limit(Relay::kToServer, 0);
  ASSERT_TRUE(stalled->PutAsync(stalled.ns(), hoard.Items(), {.item_completions = true}, &queue, 0).ok());
  const auto refused = queue.Next(kPatienceMs);
  ASSERT_TRUE(refused.has_value() && refused->kind == Completion::Kind::kItem);
  EXPECT_EQ(refused->item_result->refusal, RefusalReason::kNoSpace);

  batch_.MoveTo(600'000);
  const absl::Status late = batch_.Put();
  EXPECT_TRUE(absl::IsAborted(late)) << late;
  EXPECT_EQ(late.message(), "no_space");
  EXPECT_TRUE(batch_.IsMissed(MissCause::kRefused));
  EXPECT_TRUE(AllComeBack(0, leased, leases));

  relay.Open(Relay::kToServer);
  WaitForEnd(&queue);
  stalled.Leave();
  for (const Lease& lease : leases) EXPECT_TRUE(peer_->ReleaseLease(lease).ok());
  ASSERT_TRUE(PutBlocks(600'000, 2 * kArenaBlocks).ok());
  batch_.MoveTo(600'000 + 2 * kArenaBlocks - kBatch);
  EXPECT_TRUE(batch_.ComesBack());
}

TEST_F(ClientPressureTest, AThousandMatchesNeverFetchedAreAllEvictableOnceTheirLeasesEnd) {
  constexpr size_t kMatched = kArenaBlocks / 2;
  constexpr int kMatches = 1000;
  ASSERT_TRUE(PutBlocks(0, kMatched).ok());
  CompletionQueue queue;
  std::vector<Lease> leases;
  for (int i = 0; i < kMatches; ++i) {
    batch_.MoveTo(static_cast<uint64_t>(i) * kBatch % kMatched);
    const Chain chain = batch_.AsChain();
    ASSERT_TRUE(peer_->MatchAsync(peer_.ns(), {&chain, 1}, {.lease_ms = kLongMs}, &queue, 0).ok());
    const Ended ended = WaitForEnd(&queue);
    ASSERT_TRUE(ended.done.status.ok()) << ended.done.status;
    EXPECT_EQ(ended.done.match->usable_tokens, kBatch * 16);
    leases.push_back(ended.done.match->lease);
  }
  EXPECT_EQ(server_.Metric(kLeases), kMatches);
  EXPECT_EQ(server_.Metric("quarry_leased_bytes{tier=\"dram\"}"), kMatched * kShard);
  // None of them makes room while they are leased.
  ASSERT_TRUE(PutBlocks(100'000, 2 * kArenaBlocks).ok());
  EXPECT_TRUE(AllComeBack(0, kMatched, leases));
  // They end by time, not because anyone says so.
  for (Lease& lease : leases) ASSERT_TRUE(peer_->RenewLease(&lease, 1).ok());
  ASSERT_TRUE(server_.BecomesIdle(1));
  ASSERT_TRUE(PutBlocks(200'000, 2 * kArenaBlocks).ok());
  for (uint64_t id = 0; id < kMatched; id += kBatch) {
    batch_.MoveTo(id);
    EXPECT_TRUE(batch_.IsMissed(MissCause::kEvicted));
  }
}

TEST_F(ClientPressureTest, LeasedBlocksComeBackByteForByteAfterAFloodOfThreeArenas) {
  constexpr size_t kLeased = kArenaBlocks * 3 / 4 / kBatch * kBatch;
  std::vector<Lease> leases;
  for (uint64_t id = 0; id < kLeased; id += kBatch) {
    batch_.MoveTo(id);
    ASSERT_TRUE(batch_.Put().ok());
    const auto match = batch_.Match(kLongMs);
    ASSERT_TRUE(match.ok() && match->usable_tokens == kBatch * 16) << match.status();
    leases.push_back(match->lease);
  }
  ASSERT_TRUE(PutBlocks(100'000, 3 * kArenaBlocks).ok());
  EXPECT_TRUE(AllComeBack(0, kLeased, leases));
  for (const Lease& lease : leases) EXPECT_TRUE(peer_->ReleaseLease(lease).ok());
}

TEST_F(ClientPressureTest, AClientThatStopsReadingCostsOnlyItself) {
  ASSERT_TRUE(batch_.Put().ok());
  Relay relay(server_.address());
  Peer slow(relay.address(), PlainSpec(kShard));
  constexpr size_t kGets = 20;
  std::vector<std::unique_ptr<Batch>> theirs;
  CompletionQueue queue;
  relay.Limit(Relay::kToClient, kShard / 2);
  for (size_t i = 0; i < kGets; ++i) {
    theirs.push_back(std::make_unique<Batch>(slow, 0, kBatch));
    ASSERT_TRUE(slow->GetAsync(slow.ns(), theirs.back()->Items(), {}, &queue, i).ok());
  }
  relay.WaitUntilHeldUp(Relay::kToClient);
  // All of its gets have been heard, and what is started of them is bounded.
  ASSERT_TRUE(server_.Until([](const auto& metrics) {
    return metrics.at("quarry_requests_total{op=\"get\"}") == kGets && metrics.at(kQueued) > 0;
  }));
  EXPECT_LE(server_.Metric(kInFlightBytes), kSessionBytesInFlight);
  // Others go on: gets, puts, matches.
  for (uint64_t id = 1000; id < 1000 + 2 * kArenaBlocks; id += kBatch) {
    batch_.MoveTo(id);
    ASSERT_TRUE(batch_.Put().ok());
    EXPECT_TRUE(batch_.ComesBack());
    EXPECT_TRUE(batch_.Match(0).ok());
  }
  EXPECT_GT(server_.Metric(kQueued), 0);
  EXPECT_LE(server_.Metric(kInFlightBytes), kSessionBytesInFlight);
  // And when it reads again it has every byte, evicted meanwhile or not.
  relay.Open(Relay::kToClient);
  for (size_t i = 0; i < kGets; ++i) EXPECT_TRUE(WaitForEnd(&queue).done.status.ok());
  for (const auto& batch : theirs) EXPECT_TRUE(batch->HoldsAll());
  EXPECT_TRUE(slow.IsIdle());
  theirs.clear();
  slow.Leave();
  EXPECT_TRUE(server_.BecomesIdle(1));
}

}  // namespace
}  // namespace quarry::testing
