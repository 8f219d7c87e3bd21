// Operations that end early, by a cancel or by their deadline, at every stage: one end
// each, nothing touched afterwards, nothing left behind.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <tuple>

#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/integration/relay.h"
#include "tests/unit/common/test_seed.h"

namespace quarry::testing {
namespace {

constexpr size_t kShard = 300'000;
constexpr size_t kBlocks = 8;
constexpr uint64_t kStoredId = 1;
constexpr uint64_t kNewId = 1'000'000;
constexpr uint32_t kLongMs = 60'000;
constexpr uint32_t kSoonMs = kSanitized ? 1'500 : 400;  // a deadline that is to pass
// More than a session may have in flight, or reserve of an arena of 96 MiB.
constexpr size_t kManyBlocks = 64;

enum class By { kCancel, kDeadline };

struct Streams {
  uint32_t io_threads;
  uint32_t data_streams;
};

std::string NameOf(const ::testing::TestParamInfo<std::tuple<By, Streams>>& info) {
  const auto [by, streams] = info.param;
  return std::string(by == By::kCancel ? "Cancel" : "Deadline") + std::to_string(streams.io_threads) + "Threads" +
         std::to_string(streams.data_streams) + "Streams";
}

ClientOptions OptionsFor(const Streams& streams) {
  ClientOptions options;
  options.io_threads = streams.io_threads;
  options.data_streams = streams.data_streams;
  return options;
}

class EarlyEndTest : public ::testing::TestWithParam<std::tuple<By, Streams>> {
 protected:
  By by() const { return std::get<By>(GetParam()); }
  uint32_t deadline_ms() const { return by() == By::kDeadline ? kSoonMs : 0; }

  void SetUp() override { ASSERT_TRUE(Batch(peer_, kStoredId, kManyBlocks).Put().ok()); }

  // The connection has lived through it all, and works.
  void TearDown() override {
    relay_.Open(Relay::kToClient);
    relay_.Open(Relay::kToServer);
    Batch all(peer_, kStoredId, kManyBlocks);
    EXPECT_TRUE(all.ComesBack());
    EXPECT_FALSE(queue_.TryNext().has_value()) << "something ended twice";
    EXPECT_TRUE(peer_.IsIdle());
    EXPECT_EQ(peer_->counters().reconnects, 0u) << "a byte was moved late, which failed";
    EXPECT_TRUE(server_.BecomesIdle(1));
    peer_.Leave();
    EXPECT_EQ(server_.Stop(), 0);
  }

  OperationId Get(const Batch& batch, GetOptions options = {}) {
    options.deadline_ms = deadline_ms();
    return Begun(peer_->GetAsync(peer_.ns(), batch.Items(), options, &queue_, 0));
  }
  OperationId Put(const Batch& batch) {
    return Begun(peer_->PutAsync(peer_.ns(), batch.Items(), {.deadline_ms = deadline_ms()}, &queue_, 0));
  }
  static OperationId Begun(const absl::StatusOr<OperationId>& operation) {
    EXPECT_TRUE(operation.ok()) << operation.status();
    return operation.value_or(0);
  }

  // Ends it, at a stage that it will not leave by itself.
  Ended End(OperationId operation) {
    if (by() == By::kCancel) {
      peer_->Cancel(operation);
      peer_->Cancel(operation);
    }
    Ended ended = WaitForEnd(&queue_);
    EXPECT_EQ(ended.done.operation, operation);
    EXPECT_EQ(ended.done.status.code(),
              by() == By::kCancel ? absl::StatusCode::kCancelled : absl::StatusCode::kDeadlineExceeded)
        << ended.done.status;
    return ended;
  }
  // What has ended well before the operation has its bytes.
  void ExpectTruth(const Ended& ended, const Batch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const ItemResult& item = ended.done.transfer->items[i];
      if (item.status.ok()) {
        EXPECT_TRUE(batch.Holds(i)) << i;
      } else {
        EXPECT_EQ(item.status.code(), ended.done.status.code()) << item.status;
      }
    }
  }
  // Lets all come that was held up, while a write to the batch's memory, or a read of it,
  // would fail. The bytes of a put could overtake its end: the server has to know of it.
  void LetTheRestComeWithout(Batch* batch) {
    batch->buffers().Forbid();
    EXPECT_TRUE(server_.Until([](const auto& metrics) { return metrics.at(kInFlightPuts) == 0; }));
    relay_.Open(Relay::kToClient);
    relay_.Open(Relay::kToServer);
    Batch other(peer_, kStoredId, kBlocks);
    EXPECT_TRUE(other.ComesBack());
    EXPECT_TRUE(server_.BecomesIdle(1));
    batch->buffers().Allow();
  }
  // With a deadline there may be no time to look.
  void WaitUntilHeldUp(Relay::Direction direction) {
    if (by() == By::kCancel) relay_.WaitUntilHeldUp(direction);
  }
  ::testing::AssertionResult ReachesServer(const std::function<bool(const PrivateServer::Metrics&)>& condition) {
    return by() == By::kCancel ? server_.Until(condition) : ::testing::AssertionSuccess();
  }

  PrivateServer server_{"160MiB"};
  Relay relay_{server_.address(), std::get<Streams>(GetParam()).data_streams};
  Peer peer_{relay_.address(), PlainSpec(kShard), OptionsFor(std::get<Streams>(GetParam()))};
  CompletionQueue queue_;
};

INSTANTIATE_TEST_SUITE_P(Client, EarlyEndTest,
                         ::testing::Combine(::testing::Values(By::kCancel, By::kDeadline),
                                            ::testing::Values(Streams{1, 1}, Streams{3, 4})),
                         NameOf);

TEST_P(EarlyEndTest, OfAGetWhoseBytesAreOnTheirWay) {
  Batch batch(peer_, kStoredId, kBlocks);
  batch.buffers().Clear();
  relay_.Limit(Relay::kToClient, 5 * kShard / 2);
  const OperationId get = Get(batch);
  WaitUntilHeldUp(Relay::kToClient);
  const Ended ended = End(get);
  ExpectTruth(ended, batch);
  LetTheRestComeWithout(&batch);
  ExpectTruth(ended, batch);
  EXPECT_TRUE(batch.buffers().GapsIntact());
}

TEST_P(EarlyEndTest, OfAGetThatWaitsBehindAnother) {
  Batch first(peer_, kStoredId, kManyBlocks);
  Batch second(peer_, kStoredId, kBlocks);
  first.buffers().Clear();
  second.buffers().Clear();
  CompletionQueue first_queue;
  relay_.Limit(Relay::kToClient, 0);
  ASSERT_TRUE(peer_->GetAsync(peer_.ns(), first.Items(), {}, &first_queue, 0).ok());
  const OperationId get = Get(second);
  ASSERT_TRUE(ReachesServer([](const auto& metrics) { return metrics.at(kQueued) >= kBlocks; }));
  const Ended ended = End(get);
  for (const ItemResult& item : ended.done.transfer->items) EXPECT_EQ(item.status, ended.done.status);
  second.buffers().Forbid();
  relay_.Open(Relay::kToClient);
  EXPECT_TRUE(WaitForEnd(&first_queue).done.status.ok());
  EXPECT_TRUE(first.HoldsAll());
  second.buffers().Allow();
  EXPECT_TRUE(second.Untouched());
}

TEST_P(EarlyEndTest, OfAGetThatWaitsForItsWindow) {
  Batch batch(peer_, kStoredId, kBlocks);
  batch.buffers().Clear();
  relay_.Limit(Relay::kToClient, kShard / 2);
  const OperationId get = Get(batch, {.window_bytes = 1});
  WaitUntilHeldUp(Relay::kToClient);
  const Ended ended = End(get);
  for (const ItemResult& item : ended.done.transfer->items) EXPECT_EQ(item.status, ended.done.status);
  LetTheRestComeWithout(&batch);
  for (size_t i = 1; i < kBlocks; ++i) EXPECT_TRUE(batch.buffers().Untouched(i)) << i;
  EXPECT_TRUE(batch.buffers().GapsIntact());
}

TEST_P(EarlyEndTest, OfAFetchWhoseBytesAreOnTheirWay) {
  Batch batch(peer_, kStoredId, kBlocks);
  batch.buffers().Clear();
  relay_.Limit(Relay::kToClient, 5 * kShard / 2);
  const Chain chain = batch.AsChain();
  const OperationId fetch =
      Begun(peer_->FetchPrefixAsync(peer_.ns(), {&chain, 1}, {batch.Destinations()},
                                    {.match = {.lease_ms = 0, .deadline_ms = deadline_ms()}}, &queue_, 0));
  WaitUntilHeldUp(Relay::kToClient);
  const Ended ended = End(fetch);
  if (by() == By::kCancel) {
    EXPECT_EQ(ended.done.fetch->fetched_blocks, kBlocks);
  }
  LetTheRestComeWithout(&batch);
  for (size_t i = 0; i < kBlocks; ++i) {
    if (ended.done.fetch->transfer.items[i].status.ok()) {
      EXPECT_TRUE(batch.Holds(i)) << i;
    }
  }
  EXPECT_TRUE(batch.buffers().GapsIntact());
}

TEST_P(EarlyEndTest, OfAPutWhoseBytesAreOnTheirWayPublishesNothingAndGivesTheMemoryBack) {
  Batch batch(peer_, kNewId, kBlocks);
  batch.Fill();
  const double used = server_.Metric(kUsedBytes);
  relay_.Limit(Relay::kToServer, kShard / 2);
  const OperationId put = Put(batch);
  WaitUntilHeldUp(Relay::kToServer);
  const Ended ended = End(put);
  for (const ItemResult& item : ended.done.transfer->items) EXPECT_EQ(item.status, ended.done.status);
  LetTheRestComeWithout(&batch);
  EXPECT_EQ(server_.Metric(kUsedBytes), used);
  const auto got = batch.Get();
  ASSERT_TRUE(got.ok()) << got.status();
  for (const ItemResult& item : got->items) {
    // Never heard of, where the deadline passed on the way.
    EXPECT_TRUE(item.miss == MissCause::kRefused || (by() == By::kDeadline && item.miss == MissCause::kNeverStored))
        << Name(item.miss);
  }
  EXPECT_TRUE(batch.Untouched());
  EXPECT_TRUE(batch.Put().ok());
  EXPECT_TRUE(batch.ComesBack());
}

TEST_P(EarlyEndTest, OfAPutOfMoreThanMayBeReservedLeavesNothing) {
  Batch batch(peer_, kNewId, kManyBlocks);
  batch.Fill();
  const double used = server_.Metric(kUsedBytes);
  relay_.Limit(Relay::kToServer, 5 * kShard / 2);
  const OperationId put = Put(batch);
  WaitUntilHeldUp(Relay::kToServer);
  const Ended ended = End(put);
  LetTheRestComeWithout(&batch);
  // A block whose outcome was still on its way to the client may have been stored; those
  // beyond what had passed may not.
  const double slots = (server_.Metric(kUsedBytes) - used) / kShard;
  EXPECT_LT(slots, 3);
  const auto got = batch.Get();
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t i = 0; i < kManyBlocks; ++i) {
    if (got->items[i].miss == MissCause::kNone) {
      EXPECT_TRUE(batch.Holds(i)) << i;
    }
    if (ended.done.transfer->items[i].outcome == PutOutcome::kStored) {
      EXPECT_EQ(got->items[i].miss, MissCause::kNone) << i;
    }
  }
}

// ---------------------------------------------------------------- cancels only

TEST(CancelTest, AfterTheEndDoesNothing) {
  PrivateServer server("160MiB");
  Peer peer(server.address(), PlainSpec(kShard));
  Batch batch(peer, kStoredId, kBlocks);
  ASSERT_TRUE(batch.Put().ok());
  CompletionQueue queue;
  for (int i = 0; i < 20; ++i) {
    batch.buffers().Clear();
    const auto get = peer->GetAsync(peer.ns(), batch.Items(), {}, &queue, 0);
    ASSERT_TRUE(get.ok()) << get.status();
    EXPECT_TRUE(WaitForEnd(&queue).done.status.ok());
    peer->Cancel(*get);
    EXPECT_TRUE(batch.HoldsAll());
  }
  EXPECT_TRUE(batch.ComesBack());
  EXPECT_FALSE(queue.TryNext().has_value());
  EXPECT_TRUE(peer.IsIdle());
  EXPECT_TRUE(server.BecomesIdle(1));
  peer.Leave();
  EXPECT_EQ(server.Stop(), 0);
}

// One operation of any kind that is cancelled at any moment.
class Canceller {
 public:
  Canceller(const Peer& peer, TestRandom* random)
      : peer_(peer), random_(*random), stored_(peer, kStoredId, kBlocks), fresh_(peer, kNewId, kBlocks) {
    fresh_.Fill();
  }

  void Round(uint64_t number) {
    stored_.buffers().Allow();
    fresh_.buffers().Allow();
    const auto operation = Begin(number);
    ASSERT_TRUE(operation.ok()) << operation.status();
    for (uint64_t spin = random_.Between(0, 200'000); spin > 0; --spin) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    peer_->Cancel(*operation);
    const Ended ended = WaitForEnd(&queue_);
    ASSERT_EQ(ended.done.operation, *operation);
    ASSERT_EQ(ended.done.user_data, number);
    ASSERT_TRUE(ended.done.status.ok() || absl::IsCancelled(ended.done.status)) << ended.done.status;
    if (ended.done.match != nullptr && ended.done.match->lease) {
      ASSERT_TRUE(peer_->ReleaseLease(ended.done.match->lease).ok());
    }
    if (getting_) ExpectTruth(*ended.done.transfer);
    // Until the next round whatever comes late fails.
    stored_.buffers().Forbid();
    fresh_.buffers().Forbid();
  }
  void Finish() {
    EXPECT_FALSE(queue_.TryNext().has_value());
    stored_.buffers().Allow();
    fresh_.buffers().Allow();
    EXPECT_TRUE(stored_.buffers().GapsIntact() && fresh_.buffers().GapsIntact());
    EXPECT_TRUE(stored_.ComesBack());
  }

 private:
  absl::StatusOr<OperationId> Begin(uint64_t number) {
    const Chain chain = stored_.AsChain();
    getting_ = false;
    switch (random_.Between(0, 3)) {
      case 0:
        return peer_->MatchAsync(peer_.ns(), {&chain, 1}, {.lease_ms = kLongMs}, &queue_, number);
      case 1:
        return peer_->FetchPrefixAsync(peer_.ns(), {&chain, 1}, {stored_.Destinations()}, {.match = {.lease_ms = 0}},
                                       &queue_, number);
      case 2:
        fresh_.MoveTo(kNewId + number * kBlocks);
        return peer_->PutAsync(peer_.ns(), fresh_.Items(), {}, &queue_, number);
      default:
        getting_ = true;
        return peer_->GetAsync(peer_.ns(), stored_.Items(), {.item_completions = random_.Chance(0.5)}, &queue_, number);
    }
  }
  void ExpectTruth(const TransferResult& result) {
    for (size_t i = 0; i < kBlocks; ++i) {
      const ItemResult& item = result.items[i];
      if (item.status.ok() && item.miss == MissCause::kNone) {
        EXPECT_TRUE(stored_.Holds(i)) << i;
      }
    }
  }

  const Peer& peer_;
  TestRandom& random_;
  CompletionQueue queue_;
  Batch stored_;
  Batch fresh_;
  bool getting_ = false;
};

class ThousandCancelsTest : public ::testing::TestWithParam<Streams> {};

INSTANTIATE_TEST_SUITE_P(Client, ThousandCancelsTest, ::testing::Values(Streams{1, 1}, Streams{3, 4}),
                         [](const auto& test) { return std::to_string(test.param.io_threads) + "Threads"; });

TEST_P(ThousandCancelsTest, EndOnceEachAndLeaveNothing) {
  PrivateServer server("160MiB");
  TestRandom random;
  Peer peer(server.address(), PlainSpec(kShard), OptionsFor(GetParam()));
  Batch stored(peer, kStoredId, kBlocks);
  ASSERT_TRUE(stored.Put({.control = {.retain_ms = kLongMs}}).ok());  // whatever else is put
  {
    Canceller canceller(peer, &random);
    for (uint64_t round = 0; round < 1000; ++round) ASSERT_NO_FATAL_FAILURE(canceller.Round(round));
    canceller.Finish();
  }
  EXPECT_TRUE(peer.IsIdle());
  EXPECT_EQ(peer->counters().reconnects, 0u);
  // The retained blocks' own lease is left, and no other.
  EXPECT_TRUE(server.Until([](const auto& metrics) {
    return metrics.at(kLeases) == kBlocks && metrics.at(kInFlightPuts) == 0 && metrics.at(kQueued) == 0 &&
           metrics.at(kInFlightBytes) == 0;
  }));
  peer.Leave();
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace quarry::testing
