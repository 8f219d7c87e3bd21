// Parts of what is stored: ranges of layers, early blocks, prefixes, narrow windows.
#include <gtest/gtest.h>

#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/integration/relay.h"

namespace quarry::testing {
namespace {

constexpr size_t kShard = 200'000;  // not a multiple of a chunk, nor of a piece
constexpr uint64_t kFirstId = 500;
constexpr char kReadBytes[] = "quarry_transfer_bytes_total{op=\"get\",tier=\"dram\",transport=\"tcp\"}";

class ClientRangesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(peer_.IsIdle());
    peer_.Leave();
    EXPECT_EQ(server_.Stop(), 0);
  }

  PrivateServer server_{"160MiB"};
  Relay relay_{server_.address()};
  Peer peer_{relay_.address(), PlainSpec(kShard)};
};

TEST_F(ClientRangesTest, ARangeOfLayersIsThoseLayersAndNoOther) {
  Batch blocks(peer_, kFirstId, 4);
  ASSERT_TRUE(blocks.Put().ok());
  const size_t layers = blocks.buffers().pieces();
  for (size_t first = 0; first < layers; ++first) {
    for (size_t end = first + 1; end <= layers; ++end) EXPECT_TRUE(blocks.PiecesComeBack(first, end));
  }
}

TEST_F(ClientRangesTest, EarlyBlocksCanBeUsedWhileLaterOnesTravel) {
  Batch blocks(peer_, kFirstId, 12);
  ASSERT_TRUE(blocks.Put().ok());
  blocks.buffers().Clear();
  CompletionQueue queue;
  relay_.Limit(Relay::kToClient, 5 * kShard + kShard / 2);
  ASSERT_TRUE(peer_->GetAsync(peer_.ns(), blocks.Items(), {.item_completions = true}, &queue, 0).ok());
  relay_.WaitUntilHeldUp(Relay::kToClient);
  // Of one stream, so in order; the sixth is half-way.
  for (uint32_t i = 0; i < 5; ++i) {
    const auto early = queue.Next(kPatienceMs);
    ASSERT_TRUE(early.has_value());
    ASSERT_EQ(early->kind, Completion::Kind::kItem);
    EXPECT_EQ(early->item, i);
    EXPECT_EQ(early->item_result->miss, MissCause::kNone);
    EXPECT_TRUE(blocks.Holds(i)) << i;
  }
  EXPECT_FALSE(queue.TryNext().has_value());
  relay_.Open(Relay::kToClient);
  const Ended ended = WaitForEnd(&queue);
  EXPECT_TRUE(ended.done.status.ok()) << ended.done.status;
  ASSERT_EQ(ended.items.size(), 7u);
  for (uint32_t i = 0; i < 7; ++i) EXPECT_EQ(ended.items[i].item, 5 + i);
  EXPECT_EQ(ended.done.transfer->bytes, 12 * kShard);
  EXPECT_TRUE(blocks.HoldsAll());
}

TEST_F(ClientRangesTest, AWindowOfOneBlockMovesEverythingAndNoMoreAtOnce) {
  Batch blocks(peer_, kFirstId, 20);
  ASSERT_TRUE(blocks.Put().ok());
  for (const uint64_t window : {uint64_t{1}, uint64_t{kShard}, uint64_t{3 * kShard / 2}}) {
    EXPECT_TRUE(blocks.ComesBack({.window_bytes = window})) << window;
  }
  // While nothing arrives, one block is on its way and the rest waits at the server.
  blocks.buffers().Clear();
  CompletionQueue queue;
  const double before = server_.Metric(kReadBytes);
  relay_.Limit(Relay::kToClient, 0);
  ASSERT_TRUE(peer_->GetAsync(peer_.ns(), blocks.Items(), {.window_bytes = kShard}, &queue, 0).ok());
  relay_.WaitUntilHeldUp(Relay::kToClient);
  EXPECT_LE(server_.Metric(kInFlightBytes), kShard);
  EXPECT_EQ(server_.Metric(kQueued), 0);
  EXPECT_LE(server_.Metric(kReadBytes), before + kShard);
  relay_.Open(Relay::kToClient);
  EXPECT_TRUE(WaitForEnd(&queue).done.status.ok());
  EXPECT_TRUE(blocks.HoldsAll());
}

// ---------------------------------------------------------------- FetchPrefix

class ClientFetchTest : public ClientRangesTest {
 protected:
  static constexpr size_t kStored = 8;
  static constexpr size_t kAsked = 12;

  ClientFetchTest() : blocks_(peer_, kFirstId, kAsked) {
    Batch stored(peer_, kFirstId, kStored);
    EXPECT_TRUE(stored.Put().ok());
  }

  // Fetches, and checks that the first `moved` blocks and no others came.
  FetchResult Fetch(const FetchOptions& options, size_t moved) {
    blocks_.buffers().Clear();
    const Chain chain = blocks_.AsChain();
    const auto fetched = peer_->FetchPrefix(peer_.ns(), {&chain, 1}, {blocks_.Destinations()}, options);
    EXPECT_TRUE(fetched.ok()) << fetched.status();
    if (!fetched.ok()) return {};
    EXPECT_EQ(fetched->fetched_blocks, moved);
    EXPECT_EQ(fetched->transfer.items.size(), kAsked);
    EXPECT_EQ(fetched->transfer.bytes, moved * kShard);
    for (size_t i = 0; i < kAsked; ++i) {
      const ItemResult& item = fetched->transfer.items[i];
      EXPECT_EQ(item.status.ok() && item.miss == MissCause::kNone, i < moved) << i;
      EXPECT_TRUE(i < moved ? blocks_.Holds(i) : blocks_.buffers().Untouched(i)) << i;
    }
    EXPECT_TRUE(blocks_.buffers().GapsIntact());
    return *fetched;
  }

  Batch blocks_;
};

TEST_F(ClientFetchTest, WhatIsUsableComesAndTheBuffersBeyondAreUntouched) {
  const FetchResult all = Fetch({}, kStored);
  EXPECT_EQ(all.match.usable_tokens, kStored * 16);
  EXPECT_EQ(all.match.first_miss, MissCause::kNeverStored);
  EXPECT_EQ(all.transfer.items[kStored].miss, MissCause::kNeverStored);
  ASSERT_TRUE(all.match.lease);
  EXPECT_TRUE(peer_->ReleaseLease(all.match.lease).ok());
}

TEST_F(ClientFetchTest, MaxBlocksBoundsWhatComes) {
  for (const uint64_t most : {uint64_t{1}, uint64_t{5}, uint64_t{kStored}, uint64_t{100}}) {
    const size_t moved = std::min<size_t>(most, kStored);
    const FetchResult fetched = Fetch({.match = {.lease_ms = 0}, .max_blocks = most}, moved);
    EXPECT_EQ(fetched.match.usable_tokens, moved * 16);
    if (moved < kStored) {
      EXPECT_TRUE(absl::IsOutOfRange(fetched.transfer.items[moved].status));
    }
  }
}

TEST_F(ClientFetchTest, WithFewerThanMinBlocksNothingComes) {
  Fetch({.match = {.lease_ms = 0}, .min_blocks = kStored}, kStored);
  Fetch({.match = {.lease_ms = 0}, .min_blocks = kStored + 1}, 0);
  Fetch({.match = {.lease_ms = 0}, .max_blocks = 2, .min_blocks = 3}, 0);
}

TEST_F(ClientFetchTest, FewerDestinationsThanHashesAskForFewerBlocks) {
  blocks_.buffers().Clear();
  std::vector<SegmentList> three = blocks_.Destinations();
  three.resize(3);
  const Chain chain = blocks_.AsChain();
  const auto fetched = peer_->FetchPrefix(peer_.ns(), {&chain, 1}, {three}, {.match = {.lease_ms = 0}});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->fetched_blocks, 3u);
  for (size_t i = 0; i < kAsked; ++i) EXPECT_TRUE(i < 3 ? blocks_.Holds(i) : blocks_.buffers().Untouched(i)) << i;
}

TEST_F(ClientFetchTest, FromALocalHitOnOnlyTheRestComes) {
  Batch rest(peer_, kFirstId + 3, kStored - 3);
  Chain chain = rest.AsChain();
  chain.first_block = 3;
  const auto fetched = peer_->FetchPrefix(peer_.ns(), {&chain, 1}, {rest.Destinations()},
                                          {.match = {.local_tokens = 3 * 16, .lease_ms = 0}});
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->fetched_blocks, kStored - 3);
  EXPECT_EQ(fetched->match.usable_tokens, kStored * 16);
  EXPECT_TRUE(rest.HoldsAll());
}

}  // namespace
}  // namespace quarry::testing
