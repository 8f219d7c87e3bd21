// Puts under way: what others see of them, who stores a block that many put, and sources
// that change while they are read.
#include <gtest/gtest.h>

#include <chrono>
#include <list>
#include <optional>
#include <thread>

#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/integration/relay.h"
#include "tests/unit/common/test_seed.h"

namespace quarry::testing {
namespace {

constexpr size_t kShard = 200'000;
constexpr uint64_t kFirstId = 900;
constexpr uint32_t kSoonMs = 300;  // a deadline that is to pass

// A put whose first block has been stored, whose second is half-way, and the rest of which
// has not begun.
class HalfWayPutTest : public ::testing::Test {
 protected:
  static constexpr size_t kBlocks = 4;

  void SetUp() override {
    source_.Fill();
    relay_->Limit(Relay::kToServer, kShard + kShard / 2);
    auto put = putter_->PutAsync(putter_.ns(), source_.Items(), {}, &put_queue_, 0);
    ASSERT_TRUE(put.ok()) << put.status();
    put_ = *put;
    ASSERT_TRUE(server_.Until([](const auto& metrics) {
      return metrics.at("quarry_stored_shards_total{tier=\"dram\"}") == 1 && metrics.at(kInFlightPuts) == kBlocks - 1;
    }));
  }
  void TearDown() override {
    putter_.Leave();
    getter_.Leave();
    EXPECT_TRUE(server_.BecomesIdle(0));
    EXPECT_EQ(server_.Stop(), 0);
  }
  // A get of all, which waits; its first block has come.
  OperationId StartWaiting() {
    target_.buffers().Clear();
    auto get = getter_->GetAsync(getter_.ns(), target_.Items(), {.wait_in_flight = true, .item_completions = true},
                                 &get_queue_, 0);
    EXPECT_TRUE(get.ok()) << get.status();
    const auto first = get_queue_.Next(kPatienceMs);
    EXPECT_TRUE(first.has_value() && first->kind == Completion::Kind::kItem && first->item == 0);
    EXPECT_TRUE(target_.Holds(0));
    return get.value_or(0);
  }
  void ExpectOnlyTheFirst(MissCause cause) {
    const auto got = target_.Get();
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < kBlocks; ++i) {
      EXPECT_EQ(got->items[i].miss, i == 0 ? MissCause::kNone : cause) << i;
      EXPECT_TRUE(i == 0 ? target_.Holds(i) : target_.buffers().Untouched(i)) << i;
    }
  }

  PrivateServer server_{"160MiB"};
  std::optional<Relay> relay_{server_.address()};
  Peer putter_{relay_->address(), PlainSpec(kShard)};
  Peer getter_{server_.address(), PlainSpec(kShard)};
  Batch source_{putter_, kFirstId, kBlocks};
  Batch target_{getter_, kFirstId, kBlocks};
  CompletionQueue put_queue_;
  CompletionQueue get_queue_;
  OperationId put_ = 0;
};

TEST_F(HalfWayPutTest, IsATypedMissForThoseWhoDoNotWait) {
  const auto match = target_.Match(0);
  ASSERT_TRUE(match.ok()) << match.status();
  EXPECT_EQ(match->usable_tokens, 16u);
  EXPECT_EQ(match->first_miss, MissCause::kInFlight);
  EXPECT_EQ(match->first_miss_block, 1u);
  EXPECT_EQ(match->chains[0].states, (std::vector<BlockState>{BlockState::kDram, BlockState::kInFlight,
                                                              BlockState::kInFlight, BlockState::kInFlight}));
  ExpectOnlyTheFirst(MissCause::kInFlight);
  relay_->Open(Relay::kToServer);
  EXPECT_TRUE(WaitForEnd(&put_queue_).done.status.ok());
  EXPECT_TRUE(target_.ComesBack());
}

TEST_F(HalfWayPutTest, ComesToThoseWhoWait) {
  StartWaiting();
  EXPECT_FALSE(get_queue_.TryNext().has_value());
  relay_->Open(Relay::kToServer);
  const Ended got = WaitForEnd(&get_queue_);
  EXPECT_TRUE(got.done.status.ok()) << got.done.status;
  EXPECT_EQ(got.done.transfer->bytes, kBlocks * kShard);
  EXPECT_TRUE(target_.HoldsAll());
  EXPECT_TRUE(WaitForEnd(&put_queue_).done.status.ok());
}

TEST_F(HalfWayPutTest, ThatFailsIsAMissForThoseWhoWaitAndCanBeOfferedAgain) {
  StartWaiting();
  putter_->Cancel(put_);
  EXPECT_TRUE(absl::IsCancelled(WaitForEnd(&put_queue_).done.status));
  const Ended got = WaitForEnd(&get_queue_);
  relay_->Open(Relay::kToServer);  // what was under way still comes, and is thrown away
  EXPECT_TRUE(got.done.status.ok()) << got.done.status;
  for (size_t i = 1; i < kBlocks; ++i) {
    EXPECT_EQ(got.done.transfer->items[i].miss, MissCause::kRefused) << i;
    EXPECT_TRUE(target_.buffers().Untouched(i)) << i;
  }
  ExpectOnlyTheFirst(MissCause::kRefused);
  EXPECT_TRUE(source_.Put().ok());
  EXPECT_TRUE(target_.ComesBack());
}

TEST_F(HalfWayPutTest, OfAClientThatIsGoneIsAMissForThoseWhoWait) {
  StartWaiting();
  relay_.reset();
  const Ended got = WaitForEnd(&get_queue_);
  EXPECT_TRUE(got.done.status.ok()) << got.done.status;
  for (size_t i = 1; i < kBlocks; ++i) EXPECT_EQ(got.done.transfer->items[i].miss, MissCause::kRefused) << i;
  const Ended put = WaitForEnd(&put_queue_);
  EXPECT_TRUE(absl::IsUnavailable(put.done.status)) << put.done.status;
  ExpectOnlyTheFirst(MissCause::kRefused);
}

TEST_F(HalfWayPutTest, IsNotWaitedForBeyondTheDeadlineOrACancel) {
  Batch late_target(getter_, kFirstId, kBlocks);
  late_target.buffers().Clear();
  CompletionQueue late_queue;
  const GetOptions late_options{.deadline_ms = kSoonMs, .wait_in_flight = true};
  ASSERT_TRUE(getter_->GetAsync(getter_.ns(), late_target.Items(), late_options, &late_queue, 0).ok());
  const Ended late = WaitForEnd(&late_queue);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.done.status)) << late.done.status;
  getter_->Cancel(StartWaiting());
  const Ended cancelled = WaitForEnd(&get_queue_);
  EXPECT_TRUE(absl::IsCancelled(cancelled.done.status)) << cancelled.done.status;
  EXPECT_TRUE(cancelled.done.transfer->items[0].status.ok());
  for (size_t i = 1; i < kBlocks; ++i) {
    EXPECT_EQ(late.done.transfer->items[i].status, late.done.status) << i;
    EXPECT_EQ(cancelled.done.transfer->items[i].status, cancelled.done.status) << i;
    EXPECT_TRUE(late_target.buffers().Untouched(i)) << i;
  }
  target_.buffers().Forbid();
  relay_->Open(Relay::kToServer);
  EXPECT_TRUE(WaitForEnd(&put_queue_).done.status.ok());
  Batch other(getter_, kFirstId, kBlocks);
  EXPECT_TRUE(other.ComesBack());
  target_.buffers().Allow();
  for (size_t i = 1; i < kBlocks; ++i) EXPECT_TRUE(target_.buffers().Untouched(i)) << i;
  EXPECT_EQ(getter_->counters().reconnects, 0u);  // nor was a write tried, which would have failed
}

TEST_F(HalfWayPutTest, IsRefusedToOthersUnlessTheyWait) {
  Batch again(getter_, kFirstId, kBlocks);
  again.Fill();
  const auto hasty = getter_->Put(getter_.ns(), again.Items());
  ASSERT_TRUE(hasty.ok()) << hasty.status();
  EXPECT_EQ(hasty->items[0].outcome, PutOutcome::kAlreadyThere);
  for (size_t i = 1; i < kBlocks; ++i) EXPECT_EQ(hasty->items[i].refusal, RefusalReason::kInFlight) << i;

  ASSERT_TRUE(getter_->PutAsync(getter_.ns(), again.Items(), {.wait_in_flight = true}, &get_queue_, 0).ok());
  relay_->Open(Relay::kToServer);
  const Ended patient = WaitForEnd(&get_queue_);
  for (const ItemResult& item : patient.done.transfer->items) EXPECT_EQ(item.outcome, PutOutcome::kAlreadyThere);
  EXPECT_TRUE(WaitForEnd(&put_queue_).done.status.ok());
  EXPECT_TRUE(target_.ComesBack());
}

TEST_F(HalfWayPutTest, ThatFailsIsTakenOverByOneOfThoseWhoWait) {
  std::list<Peer> peers;
  std::list<Batch> batches;
  std::list<CompletionQueue> queues;
  for (int i = 0; i < 5; ++i) {
    Peer& peer = peers.emplace_back(server_.address(), PlainSpec(kShard));
    Batch& batch = batches.emplace_back(peer, kFirstId, kBlocks);
    batch.Fill();
    ASSERT_TRUE(peer->PutAsync(peer.ns(), batch.Items(), {.wait_in_flight = true}, &queues.emplace_back(), 0).ok());
  }
  ASSERT_TRUE(server_.Until([](const auto& metrics) { return metrics.at("quarry_requests_total{op=\"put\"}") == 6; }));
  putter_->Cancel(put_);
  WaitForEnd(&put_queue_);
  size_t stored[kBlocks] = {};
  for (CompletionQueue& queue : queues) {
    const Ended ended = WaitForEnd(&queue);
    EXPECT_TRUE(ended.done.status.ok()) << ended.done.status;
    for (size_t i = 0; i < kBlocks; ++i) {
      const ItemResult& item = ended.done.transfer->items[i];
      EXPECT_NE(item.outcome, PutOutcome::kRefused) << Name(item.refusal);
      if (item.outcome == PutOutcome::kStored) ++stored[i];
    }
  }
  for (size_t i = 0; i < kBlocks; ++i) EXPECT_EQ(stored[i], i == 0 ? 0u : 1u) << i;
  EXPECT_TRUE(target_.ComesBack());
  batches.clear();
}

// ---------------------------------------------------------------- many at once

TEST(ConcurrentPutTest, OfManyClientsOneStoresEachBlockAndAllAreToldTheTruth) {
  constexpr size_t kClients = 8;
  constexpr size_t kBlocks = 16;
  constexpr int kRounds = kSanitized ? 4 : 15;
  PrivateServer server("160MiB");
  std::list<Peer> peers;
  std::list<Batch> batches;
  for (size_t i = 0; i < kClients; ++i) {
    batches.emplace_back(peers.emplace_back(server.address(), PlainSpec(kShard)), 0, kBlocks);
  }
  for (int round = 0; round < kRounds; ++round) {
    std::list<CompletionQueue> queues;
    auto peer = peers.begin();
    for (Batch& batch : batches) {
      batch.MoveTo(static_cast<uint64_t>(round) * 1000);
      batch.Fill();
    }
    for (Batch& batch : batches) {
      const PutOptions options{.wait_in_flight = round % 2 == 0};
      ASSERT_TRUE((*peer)->PutAsync(peer->ns(), batch.Items(), options, &queues.emplace_back(), 0).ok());
      ++peer;
    }
    size_t stored[kBlocks] = {};
    for (CompletionQueue& queue : queues) {
      const Ended ended = WaitForEnd(&queue);
      ASSERT_TRUE(ended.done.status.ok()) << ended.done.status;
      for (size_t i = 0; i < kBlocks; ++i) {
        const ItemResult& item = ended.done.transfer->items[i];
        if (item.outcome == PutOutcome::kStored) ++stored[i];
        if (item.outcome == PutOutcome::kRefused) {
          EXPECT_EQ(item.refusal, RefusalReason::kInFlight);
          EXPECT_EQ(round % 2, 1) << "refused although it would have waited";
        }
      }
    }
    for (size_t i = 0; i < kBlocks; ++i) EXPECT_EQ(stored[i], 1u) << i;
    for (Batch& batch : batches) EXPECT_TRUE(batch.ComesBack());
  }
  EXPECT_EQ(server.Metric("quarry_stored_shards_total{tier=\"dram\"}"), kRounds * kBlocks);
  batches.clear();
  peers.clear();
  EXPECT_TRUE(server.BecomesIdle(0));
  EXPECT_EQ(server.Stop(), 0);
}

// ---------------------------------------------------------------- sources that change

constexpr size_t kLargeShard = 16 << 20;  // more than sockets hold

TEST(ChangingSourceTest, WhatChangesBetweenItsSumAndItsSendingIsRefused) {
  PrivateServer server("256MiB", {.more = {"--slab=16MiB"}});
  Relay relay(server.address());
  Peer peer(relay.address(), PlainSpec(kLargeShard));
  Batch block(peer, kFirstId, 1);
  block.Fill();
  CompletionQueue queue;
  relay.Limit(Relay::kToServer, 1 << 20);
  ASSERT_TRUE(peer->PutAsync(peer.ns(), block.Items(), {}, &queue, 0).ok());
  relay.WaitUntilHeldUp(Relay::kToServer);
  block.buffers().Fill(0, ContentOf(kFirstId + 1, 0, 0, kLargeShard));  // another block's
  relay.Open(Relay::kToServer);
  const Ended put = WaitForEnd(&queue);
  ASSERT_TRUE(put.done.status.ok()) << put.done.status;
  EXPECT_EQ(put.done.transfer->items[0].outcome, PutOutcome::kRefused);
  EXPECT_EQ(put.done.transfer->items[0].refusal, RefusalReason::kChecksum);
  EXPECT_TRUE(block.IsMissed(MissCause::kRefused));
  EXPECT_TRUE(block.Put().ok());
  EXPECT_TRUE(block.ComesBack());
  peer.Leave();
  EXPECT_EQ(server.Stop(), 0);
}

TEST(ChangingSourceTest, AtNoMomentDoesAMixOfTwoContentsBecomeABlock) {
  PrivateServer server("256MiB", {.more = {"--slab=16MiB"}});
  Peer peer(server.address(), PlainSpec(kLargeShard));
  Batch target(peer, kFirstId, 1);
  const Bytes before = ContentOf(1, 0, 0, kLargeShard);
  const Bytes after = ContentOf(2, 0, 0, kLargeShard);
  TestRandom random;
  for (uint64_t id = kFirstId; id < kFirstId + (kSanitized ? 4 : 20); ++id) {
    ReplaceableMemory source(before, after);
    const auto region = peer->RegisterMemory(source.data(), kLargeShard);
    ASSERT_TRUE(region.ok()) << region.status();
    target.MoveTo(id);
    Item item = target.ItemAt(0);
    item.segments = {{source.data(), kLargeShard, 0, 1}};
    CompletionQueue queue;
    ASSERT_TRUE(peer->PutAsync(peer.ns(), {item}, {}, &queue, 0).ok());
    std::this_thread::sleep_for(std::chrono::microseconds(random.Between(0, 15'000)));
    source.Replace();
    const Ended put = WaitForEnd(&queue);
    ASSERT_TRUE(put.done.status.ok()) << put.done.status;
    const auto got = target.Get();
    ASSERT_TRUE(got.ok()) << got.status();
    if (put.done.transfer->items[0].outcome == PutOutcome::kStored) {
      const Bytes bytes = target.buffers().Read(0);
      EXPECT_EQ(got->items[0].miss, MissCause::kNone);
      EXPECT_TRUE(bytes == before || bytes == after);
    } else {
      EXPECT_EQ(put.done.transfer->items[0].refusal, RefusalReason::kChecksum);
      EXPECT_EQ(got->items[0].miss, MissCause::kRefused);
      EXPECT_TRUE(target.Untouched());
    }
  }
  peer.Leave();
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace quarry::testing
