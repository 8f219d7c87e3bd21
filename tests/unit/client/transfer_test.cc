// Gets, puts and fetches: every item ends once, its bytes are right or said not to be, and
// buffers are not touched after their release.
#include <memory>

#include "tests/unit/client/client_fixture.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using transport::TransferStatus;

class TransferTest : public ClientFixture {
 protected:
  OperationId BeginGet(const std::vector<int>& blocks, GetOptions options = {}) {
    if (options.deadline_ms == 0) options.deadline_ms = kLongMs;
    auto id = client_->GetAsync(ns_, Items(blocks), options, &queue_, 3);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  OperationId BeginPut(const std::vector<int>& blocks, PutOptions options = {}) {
    std::vector<Item> items = Items(blocks);
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].depth = i;
      Fill(i, TestPayload(blocks[i]));
    }
    if (options.deadline_ms == 0) options.deadline_ms = kLongMs;
    auto id = client_->PutAsync(ns_, std::move(items), options, &queue_, 3);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  void SendDone(uint64_t request, wire::GetProgress progress = {}) {
    progress.done = true;
    session_.control.Send({request, progress});
  }
  // Moves a block through the data stream: what was sent on it before has been dealt with.
  void FlushDataStream() {
    const OperationId id = BeginGet({90});
    while (session_.control.Read().request() != id) {
    }
    EXPECT_EQ(session_.StartWrite(Block(id, 0, 90)).get(), TransferStatus::kOk);
    SendDone(id);
    EXPECT_TRUE(Next().status.ok());
    // A cancel before it is said behind its kDone, so it may come behind this get, too.
    fakes::Received last = session_.control.Read();
    while (last.request() != id) last = session_.control.Read();
    EXPECT_TRUE(last.Is<wire::Delivered>());
  }
};

TEST_F(TransferTest, AGetPutsTheBytesInPlaceAndConfirms) {
  Connect();
  GetOptions options;
  options.item_completions = true;
  const OperationId id = BeginGet({1, 2, 3}, options);
  const fakes::Received request = session_.control.Read();
  const auto& get = request.As<wire::Get>();
  EXPECT_EQ(get.handle, kTestHandle);
  ASSERT_EQ(get.runs.size(), 1u);
  EXPECT_EQ(get.runs[0].hashes, TestHash(1) + TestHash(2) + TestHash(3));
  EXPECT_EQ(get.deadline_ms, kLongMs);

  session_.StartWrite(Block(id, 2, 3));
  Completion item = Next();
  EXPECT_EQ(item.kind, Completion::Kind::kItem);
  EXPECT_EQ(item.item, 2u);
  EXPECT_EQ(BytesAt(2), TestPayload(3));  // used while the others travel
  session_.StartWrite(Block(id, 0, 1));
  EXPECT_EQ(Next().item, 0u);
  wire::GetProgress progress;
  progress.missed_items = {1};
  progress.causes = {MissCause::kEvicted};
  SendDone(id, progress);
  item = Next();
  EXPECT_EQ(item.item, 1u);
  EXPECT_EQ(item.item_result->miss, MissCause::kEvicted);

  const Completion done = Next();
  EXPECT_EQ(done.kind, Completion::Kind::kDone);
  EXPECT_TRUE(done.status.ok()) << done.status;
  EXPECT_FALSE(done.held);
  EXPECT_EQ(done.transfer->bytes, 2 * kTestShardBytes);
  EXPECT_EQ(done.transfer->items[0].miss, MissCause::kNone);
  EXPECT_EQ(done.transfer->items[1].miss, MissCause::kEvicted);
  EXPECT_EQ(BytesAt(0), TestPayload(1));
  EXPECT_TRUE(Untouched(1));
  EXPECT_TRUE(Untouched(3));
  const fakes::Received delivered = session_.control.Read();
  EXPECT_EQ(delivered.request(), id);
  EXPECT_EQ(delivered.As<wire::Delivered>().items, 2u);
  EXPECT_EQ(delivered.As<wire::Delivered>().bytes, 2 * kTestShardBytes);
  ExpectNothingPending();
}

TEST_F(TransferTest, AGetIsDoneWhenItsLastBytesComeAfterTheServersLastWord) {
  Connect();
  const OperationId id = BeginGet({1});
  SendDone(id);
  session_.StartWrite(Block(id, 0, 1));
  EXPECT_TRUE(Next().status.ok());
  EXPECT_EQ(BytesAt(0), TestPayload(1));
  ExpectNothingPending();
}

TEST_F(TransferTest, WrongBytesAreDataLossAndReported) {
  Connect();
  const OperationId id = BeginGet({1, 2});
  session_.control.Read();
  fakes::FakeItem corrupt = Block(id, 1, 2);
  corrupt.corrupt_sums = true;
  session_.StartWrite(Block(id, 0, 1));
  session_.StartWrite(std::move(corrupt));
  SendDone(id);
  const Completion done = Next();
  EXPECT_TRUE(done.status.ok());
  EXPECT_TRUE(done.transfer->items[0].status.ok());
  EXPECT_TRUE(absl::IsDataLoss(done.transfer->items[1].status)) << done.transfer->items[1].status;
  EXPECT_EQ(done.transfer->bytes, kTestShardBytes);
  EXPECT_EQ(client_->counters().checksum_failures, 1u);
  EXPECT_THAT(session_.control.Read().As<wire::Delivered>().corrupt_items, ElementsAre(1));
}

TEST_F(TransferTest, TheBytesOfAnotherBlockAreDataLoss) {
  Connect();
  const OperationId id = BeginGet({1});
  fakes::FakeItem other = Block(id, 0, 2);  // intact, and not what was asked for
  session_.StartWrite(std::move(other));
  SendDone(id);
  EXPECT_TRUE(absl::IsDataLoss(Next().transfer->items[0].status));
}

TEST_F(TransferTest, ABlockOfAnotherSizeEndsItsItemOnly) {
  Connect();
  const OperationId id = BeginGet({1, 2});
  fakes::FakeItem larger = Block(id, 0, 1);
  larger.payload.resize(kTestShardBytes + 1);
  session_.StartWrite(std::move(larger));
  session_.StartWrite(Block(id, 1, 2));
  SendDone(id);
  const Completion done = Next();
  EXPECT_TRUE(absl::IsFailedPrecondition(done.transfer->items[0].status)) << done.transfer->items[0].status;
  EXPECT_TRUE(done.transfer->items[1].status.ok());
  EXPECT_EQ(BytesAt(1), TestPayload(2));
}

TEST_F(TransferTest, CreditIsGivenBackAsItemsLand) {
  Connect();
  GetOptions options;
  options.window_bytes = kTestShardBytes;
  const OperationId id = BeginGet({1, 2}, options);
  EXPECT_EQ(session_.control.Read().As<wire::Get>().credit_bytes, kTestShardBytes);
  session_.StartWrite(Block(id, 0, 1));
  const fakes::Received credit = session_.control.Read();
  EXPECT_EQ(credit.request(), id);
  EXPECT_EQ(credit.As<wire::Credit>().bytes, kTestShardBytes);
  session_.StartWrite(Block(id, 1, 2));
  SendDone(id);
  EXPECT_TRUE(Next().status.ok());
}

TEST_F(TransferTest, AfterADeadlineTheBufferIsNotTouchedAgain) {
  Connect();
  GetOptions options;
  options.deadline_ms = 50;
  options.item_completions = true;
  const OperationId id = BeginGet({1, 2}, options);
  session_.StartWrite(Block(id, 0, 1));
  EXPECT_EQ(Next().kind, Completion::Kind::kItem);
  const Completion done = Next();
  EXPECT_EQ(done.kind, Completion::Kind::kDone);
  EXPECT_TRUE(absl::IsDeadlineExceeded(done.status));
  EXPECT_FALSE(done.held);
  EXPECT_TRUE(done.transfer->items[0].status.ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(done.transfer->items[1].status));
  EXPECT_TRUE(session_.control.Read().Is<wire::Get>());
  EXPECT_TRUE(session_.control.Read().Is<wire::Cancel>());

  memory_.assign(memory_.size(), kGuard);
  session_.StartWrite(Block(id, 1, 2));
  FlushDataStream();
  EXPECT_TRUE(Untouched(1));
  ExpectNothingPending();
}

TEST_F(TransferTest, AnItemThatTheServerDroppedIsAborted) {
  Connect();
  const OperationId id = BeginGet({1, 2});
  session_.StartWrite(Block(id, 0, 1));
  wire::GetProgress progress;
  progress.dropped_items = {1};
  SendDone(id);
  SendDone(id, progress);  // a later word than `done` still counts
  const Completion done = Next();
  EXPECT_TRUE(done.status.ok()) << done.status;
  EXPECT_TRUE(done.transfer->items[0].status.ok());
  EXPECT_TRUE(absl::IsAborted(done.transfer->items[1].status));
  ExpectNothingPending();
}

TEST_F(TransferTest, ABrokenConnectionSaysWhichItemsHadArrived) {
  Connect();
  GetOptions options;
  options.item_completions = true;
  const OperationId id = BeginGet({1, 2}, options);
  session_.StartWrite(Block(id, 0, 1));
  EXPECT_EQ(Next().kind, Completion::Kind::kItem);
  session_.channel->Close();  // only the data stream
  const Completion done = Next();
  EXPECT_TRUE(absl::IsUnavailable(done.status)) << done.status;
  EXPECT_TRUE(done.transfer->items[0].status.ok());
  EXPECT_TRUE(absl::IsUnavailable(done.transfer->items[1].status));
}

TEST_F(TransferTest, AMissOfAnItemThatThereIsNotEndsTheConnection) {
  Connect();
  const OperationId id = BeginGet({1});
  wire::GetProgress progress;
  progress.missed_items = {1};
  progress.causes = {MissCause::kEvicted};
  SendDone(id, progress);
  EXPECT_TRUE(absl::IsUnavailable(Next().status));
}

TEST_F(TransferTest, AThousandCancelledGetsEndOnceEachAndWriteNothingLater) {
  Connect();
  constexpr int kOperations = 1'000;
  for (int i = 0; i < kOperations; ++i) {
    const OperationId id = BeginGet({1});
    if (i % 2 == 0) session_.StartWrite(Block(id, 0, 1));
    client_->Cancel(id);
    const Completion done = Next();
    ASSERT_EQ(done.operation, id);
    ASSERT_EQ(done.kind, Completion::Kind::kDone);
    ASSERT_TRUE(absl::IsCancelled(done.status)) << done.status;
    if (done.held) {
      ASSERT_EQ(Next().kind, Completion::Kind::kReleased);
    }
  }
  memory_.assign(memory_.size(), kGuard);
  FlushDataStream();
  // The place of item 0 has received the block of the flush; all behind it is as it was.
  EXPECT_TRUE(Untouched(1));
  ExpectNothingPending();
}

TEST_F(TransferTest, APutIsReadAndItsOutcomesReported) {
  Connect();
  const OperationId id = BeginPut({1, 2, 3});
  const fakes::Received request = session_.control.Read();
  const auto& put = request.As<wire::Put>();
  ASSERT_EQ(put.runs.size(), 1u);
  EXPECT_EQ(put.runs[0].hashes, TestHash(1) + TestHash(2) + TestHash(3));
  EXPECT_THAT(put.runs[0].bytes, ElementsAre(kTestShardBytes));
  wire::PutProgress progress;
  progress.items = {1, 2};
  progress.outcomes = {PutOutcome::kAlreadyThere, PutOutcome::kRefused};
  progress.reasons = {RefusalReason::kNone, RefusalReason::kNoSpace};
  session_.control.Send({id, progress});
  std::vector<std::byte> pulled(kTestShardBytes);
  EXPECT_EQ(session_.StartRead(id, 0, &pulled).get(), TransferStatus::kOk);
  EXPECT_EQ(pulled, TestPayload(1));
  progress = {};
  progress.items = {0};
  progress.outcomes = {PutOutcome::kStored};
  progress.reasons = {RefusalReason::kNone};
  progress.done = true;
  session_.control.Send({id, progress});

  const Completion done = Next();
  ASSERT_TRUE(done.status.ok()) << done.status;
  EXPECT_EQ(done.transfer->bytes, kTestShardBytes);
  EXPECT_EQ(done.transfer->items[0].outcome, PutOutcome::kStored);
  EXPECT_EQ(done.transfer->items[1].outcome, PutOutcome::kAlreadyThere);
  EXPECT_EQ(done.transfer->items[2].outcome, PutOutcome::kRefused);
  EXPECT_EQ(done.transfer->items[2].refusal, RefusalReason::kNoSpace);
  ExpectNothingPending();
}

TEST_F(TransferTest, ACancelledPutIsNotReadAnyMore) {
  Connect();
  const OperationId id = BeginPut({1});
  client_->Cancel(id);
  const Completion done = Next();
  EXPECT_TRUE(absl::IsCancelled(done.status));
  EXPECT_FALSE(done.held);
  std::vector<std::byte> pulled(kTestShardBytes);
  EXPECT_EQ(session_.StartRead(id, 0, &pulled).get(), TransferStatus::kCancelled);
  ExpectNothingPending();
}

TEST_F(TransferTest, APutThatIsDoneBeforeItsItemsEndsTheConnection) {
  Connect();
  const OperationId id = BeginPut({1});
  wire::PutProgress progress;
  progress.done = true;
  session_.control.Send({id, progress});
  EXPECT_TRUE(absl::IsUnavailable(Next().status));
}

TEST_F(TransferTest, AFetchMovesWhatIsUsableAndLeavesTheRestUntouched) {
  Connect();
  const Chain chain = TestChain(5);
  FetchOptions options;
  options.match.deadline_ms = kLongMs;
  options.shard = 1;
  std::vector<std::vector<SegmentList>> places{{Place(0), Place(1), Place(2), Place(3)}};
  const OperationId id = *client_->FetchPrefixAsync(ns_, {&chain, 1}, places, options, &queue_, 0);
  const fakes::Received request = session_.control.Read();
  const auto& fetch = request.As<wire::FetchPrefix>();
  EXPECT_THAT(fetch.shards, ElementsAre(1));
  // The fifth hash has no destination.
  EXPECT_EQ(fetch.match.chains[0].hashes, TestHash(0) + TestHash(1) + TestHash(2) + TestHash(3));

  // Bytes may overtake the match reply.
  fakes::FakeItem block = Block(id, 1, 1);
  block.identity_seed = TestSeed(1, 1);
  EXPECT_EQ(session_.StartWrite(std::move(block)).get(), TransferStatus::kOk);
  wire::MatchReply reply;
  reply.usable_tokens = 32;
  reply.chains = {{absl::string_view("\1\1\3\1", 4), 0, 2}};
  reply.first_miss = MissCause::kIncomplete;
  reply.first_miss_block = 2;
  reply.fetched_blocks = 2;
  session_.control.Send({id, reply});
  SendDone(id);
  block = Block(id, 0, 0);
  block.identity_seed = TestSeed(0, 1);
  session_.StartWrite(std::move(block));

  const Completion done = Next();
  ASSERT_TRUE(done.status.ok()) << done.status;
  const FetchResult& result = *done.fetch;
  EXPECT_EQ(result.fetched_blocks, 2u);
  EXPECT_EQ(result.match.usable_tokens, 32u);
  EXPECT_EQ(result.transfer.bytes, 2 * kTestShardBytes);
  EXPECT_EQ(result.transfer.items[0].miss, MissCause::kNone);
  EXPECT_EQ(result.transfer.items[1].miss, MissCause::kNone);
  EXPECT_EQ(result.transfer.items[2].miss, MissCause::kIncomplete);
  EXPECT_EQ(result.transfer.items[3].miss, MissCause::kIncomplete);  // there, but behind the miss
  EXPECT_EQ(BytesAt(0), TestPayload(0));
  EXPECT_EQ(BytesAt(1), TestPayload(1));
  EXPECT_TRUE(Untouched(2));
  EXPECT_TRUE(Untouched(3));
  ExpectNothingPending();
}

TEST_F(TransferTest, BlocksBeyondMaxBlocksAreSaidToBeLeftOut) {
  Connect();
  const Chain chain = TestChain(2);
  FetchOptions options;
  options.max_blocks = 1;
  const OperationId id = *client_->FetchPrefixAsync(ns_, {&chain, 1}, {{Place(0), Place(1)}}, options, &queue_, 0);
  wire::MatchReply reply;
  reply.chains = {{"\1\1", 0, 1}};
  reply.fetched_blocks = 1;
  session_.control.Send({id, reply});
  session_.StartWrite(Block(id, 0, 0));
  SendDone(id);
  const Completion done = Next();
  ASSERT_TRUE(done.status.ok()) << done.status;
  EXPECT_TRUE(done.fetch->transfer.items[0].status.ok());
  EXPECT_TRUE(absl::IsOutOfRange(done.fetch->transfer.items[1].status));
}

TEST_F(TransferTest, BlockingCallsReturnTheResult) {
  Connect();
  auto got = std::async(std::launch::async, [&] { return client_->Get(ns_, Items({4})); });
  const uint64_t id = session_.control.Read().request();
  session_.StartWrite(Block(id, 0, 4));
  SendDone(id);
  const auto result = got.get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->bytes, kTestShardBytes);
  EXPECT_EQ(BytesAt(0), TestPayload(4));
}

TEST_F(TransferTest, SeveralIoThreadsDeliverEveryItemOnce) {
  ClientOptions options = Options();
  options.io_threads = 3;
  Connect(options);
  GetOptions get;
  get.item_completions = true;
  for (int round = 0; round < 50; ++round) {
    const OperationId id = BeginGet({1, 2, 3, 4}, get);
    for (uint32_t i = 0; i < 4; ++i) session_.StartWrite(Block(id, i, static_cast<int>(i) + 1));
    SendDone(id);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(Next().kind, Completion::Kind::kItem);
    const Completion done = Next();
    ASSERT_EQ(done.kind, Completion::Kind::kDone);
    ASSERT_TRUE(done.status.ok());
    ASSERT_EQ(done.transfer->bytes, 4 * kTestShardBytes);
  }
  ExpectNothingPending();
}

}  // namespace
}  // namespace quarry
