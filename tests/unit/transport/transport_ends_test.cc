// Every transport: how transfers end. Each is finished exactly once, and released memory is
// not touched again.
#include "tests/unit/transport/transport_ends.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "common/clock.h"
#include "tests/unit/common/test_seed.h"

namespace quarry::transport {
namespace {

INSTANTIATE_TEST_SUITE_P(All, TransportEndsTest, ::testing::ValuesIn(AllLinks()), LinkName);

TEST_P(TransportEndsTest, WithdrawnBeforeItMovesIsReleasedAtOnce) {
  for (Kind kind : {Kind::kWrite, Kind::kRead}) {
    const uint64_t id = kind == Kind::kWrite ? 1 : 2;
    auto request = NewRequest();
    request->Add(Shape::kStrided64K, kBlockBytes, kIdentity);
    link_->client().Expose(id, request);
    EXPECT_EQ(link_->client().Withdraw(id, [] { ADD_FAILURE() << "released twice"; }), Release::kReleased);
    request->Lock();
    const auto end = Start(kind, {id, 0}, SlotFor(kind, 0));
    ASSERT_TRUE(WaitForEnds({end}));
    if (kind == Kind::kRead) {
      EXPECT_EQ(end->status, TransferStatus::kCancelled);
    }
    EXPECT_EQ((*request)[0].reports(), 0);
    ExpectLinkWorks();
    request->Unlock();
  }
}

TEST_P(TransportEndsTest, WithdrawnWhileItMovesIsNotTouchedOnceReleased) {
  uint64_t id = 0;
  for (int stage : Stages()) {
    for (Kind kind : {Kind::kWrite, Kind::kRead}) {
      SCOPED_TRACE(testing::Message() << "stage " << stage << (kind == Kind::kWrite ? " write" : " read"));
      ++id;
      Started started = StartRequest(kind, id);
      NudgeTimes(stage);
      std::atomic<int> released{0};
      // What touches locked memory faults, and a faulting stream breaks.
      const auto lock = [&, request = started.request] {
        request->Lock();
        ++released;
      };
      if (link_->client().Withdraw(id, lock) == Release::kReleased) lock();
      // The server goes on.
      for (uint32_t i = 0; i < kItems; ++i) started.ends.push_back(Start(kind, {id, i}, SlotFor(kind, kItems + i)));
      ASSERT_TRUE(WaitForEnds(started.ends));
      ASSERT_TRUE(Wait([&] { return released > 0; }));
      NudgeTimes(3);
      EXPECT_EQ(released, 1);
      ExpectFinishedOnce(started, {TransferStatus::kOk, TransferStatus::kCancelled});
      started.request->Unlock();
      for (uint32_t i = 0; i < kItems; ++i) EXPECT_TRUE((*started.request)[i].memory.GapsIntact());
    }
  }
  ExpectLinkWorks();
}

TEST_P(TransportEndsTest, WithdrawnAfterItMovedIsReleasedAtOnce) {
  for (Kind kind : {Kind::kWrite, Kind::kRead}) {
    const uint64_t id = kind == Kind::kWrite ? 1 : 2;
    Started started = StartRequest(kind, id);
    ASSERT_TRUE(WaitForEnds(started.ends));
    for (uint32_t i = 0; i < kItems; ++i) {
      ASSERT_TRUE(Wait([&] { return (*started.request)[i].reports() == 1; }));
    }
    EXPECT_EQ(link_->client().Withdraw(id, [] { ADD_FAILURE() << "released twice"; }), Release::kReleased);
    ExpectFinishedOnce(started, {TransferStatus::kOk});
    std::weak_ptr<TestRequest> left = started.request;
    started.request.reset();
    EXPECT_TRUE(Wait([&] { return left.expired(); })) << "the channel keeps a withdrawn request";
  }
}

// From the callback of the last item, as a client that is done does.
TEST_P(TransportEndsTest, WithdrawnFromItsOwnCallbackIsReleased) {
  for (Kind kind : {Kind::kWrite, Kind::kRead}) {
    const uint64_t id = kind == Kind::kWrite ? 1 : 2;
    auto request = NewRequest();
    request->Add(Shape::kStrided64K, kBlockBytes, kIdentity);
    std::atomic<int> released{0};
    request->OnAnyReport([&](uint32_t) {
      if (link_->client().Withdraw(id, [&] { ++released; }) == Release::kReleased) ++released;
    });
    link_->client().Expose(id, request);
    const auto end = Start(kind, {id, 0}, SlotFor(kind, 0));
    ASSERT_TRUE(Wait([&] { return released > 0 && end->done(); }));
    EXPECT_EQ(released, 1);
    EXPECT_EQ(end->status, TransferStatus::kOk);
  }
  ExpectLinkWorks();
}

TEST_P(TransportEndsTest, CancelEndsTransfersAtEveryStage) {
  uint64_t id = 0;
  for (int stage : Stages()) {
    for (Kind kind : {Kind::kWrite, Kind::kRead}) {
      SCOPED_TRACE(testing::Message() << "stage " << stage << (kind == Kind::kWrite ? " write" : " read"));
      ++id;
      link_->server().Cancel(id);  // of nothing yet
      Started started = StartRequest(kind, id);
      NudgeTimes(stage);
      link_->server().Cancel(id);
      link_->server().Cancel(id);
      ASSERT_TRUE(WaitForEnds(started.ends));
      ExpectFinishedOnce(started, {TransferStatus::kOk, TransferStatus::kCancelled});
      std::atomic<int> released{0};
      if (link_->client().Withdraw(id, [&] { ++released; }) == Release::kReleased) ++released;
      ASSERT_TRUE(Wait([&] { return released > 0; }));
      link_->server().Cancel(id);  // of nothing any more
      for (uint32_t i = 0; i < kItems; ++i) EXPECT_TRUE((*started.request)[i].memory.GapsIntact());
    }
  }
  ExpectLinkWorks();
}

TEST_P(TransportEndsTest, CancelOfOneRequestLeavesOthersAlone) {
  Started doomed = StartRequest(Kind::kWrite, 1);
  Started kept = StartRequest(Kind::kWrite, 2);
  Started kept_read = StartRequest(Kind::kRead, 3);
  NudgeTimes(2);
  link_->server().Cancel(1);
  ASSERT_TRUE(WaitForEnds(doomed.ends));
  ASSERT_TRUE(WaitForEnds(kept.ends));
  ASSERT_TRUE(WaitForEnds(kept_read.ends));
  ExpectFinishedOnce(kept, {TransferStatus::kOk});
  ExpectFinishedOnce(kept_read, {TransferStatus::kOk});
  for (uint32_t i = 0; i < kItems; ++i) {
    ASSERT_TRUE(Wait([&] { return (*kept.request)[i].reports() > 0; }));
    EXPECT_EQ((*kept.request)[i].arrived, 1);
  }
}

TEST_P(TransportEndsTest, CloseFinishesWhatIsQueuedAndWhatMoves) {
  for (int stage : Stages()) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    link_ = GetParam().make();
    Started writes = StartRequest(Kind::kWrite, 1);
    Started reads = StartRequest(Kind::kRead, 2);
    NudgeTimes(stage);
    link_->server().Close();
    const auto late = Start(Kind::kWrite, {1, 0}, SlotFor(Kind::kWrite, 0));
    EXPECT_EQ(late->finished, 1);
    EXPECT_EQ(late->status, TransferStatus::kClosed);
    ASSERT_TRUE(WaitForEnds(writes.ends));
    ASSERT_TRUE(WaitForEnds(reads.ends));
    ExpectFinishedOnce(writes, {TransferStatus::kOk, TransferStatus::kClosed});
    ExpectFinishedOnce(reads, {TransferStatus::kOk, TransferStatus::kClosed});
    std::atomic<int> released{0};
    for (uint64_t id : {1, 2}) {
      if (link_->client().Withdraw(id, [&] { ++released; }) == Release::kReleased) ++released;
    }
    ASSERT_TRUE(Wait([&] { return released == 2; }));
    link_->server().Close();  // again
  }
}

TEST_P(TransportEndsTest, DestructionFinishesAndReleasesEverything) {
  for (int stage : Stages()) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    link_ = GetParam().make();
    Started writes = StartRequest(Kind::kWrite, 1);
    Started reads = StartRequest(Kind::kRead, 2);
    NudgeTimes(stage);
    std::atomic<int> released{0};
    for (uint64_t id : {1, 2}) {
      if (link_->client().Withdraw(id, [&] { ++released; }) == Release::kReleased) ++released;
    }
    if (stage % 2 == 0) link_->DestroyClient();
    link_.reset();
    EXPECT_EQ(released, 2);
    const std::initializer_list<TransferStatus> any = {TransferStatus::kOk, TransferStatus::kCancelled,
                                                       TransferStatus::kClosed};
    ExpectFinishedOnce(writes, any);
    ExpectFinishedOnce(reads, any);
    EXPECT_EQ(writes.request.use_count(), 1) << "somebody keeps the request";
    EXPECT_EQ(reads.request.use_count(), 1) << "somebody keeps the request";
  }
}

// No caller does that on purpose; each still has to be finished.
TEST_P(TransportEndsTest, AnItemStartedTwiceIsFinishedTwice) {
  for (Kind kind : {Kind::kWrite, Kind::kRead}) {
    const uint64_t id = kind == Kind::kWrite ? 1 : 2;
    Started started = StartRequest(kind, id);
    for (uint32_t i = 0; i < kItems; ++i) started.ends.push_back(Start(kind, {id, i}, SlotFor(kind, kItems + i)));
    ASSERT_TRUE(WaitForEnds(started.ends));
    for (const TransferEndPtr& end : started.ends) EXPECT_EQ(end->finished, 1);
  }
  EXPECT_EQ(link_->broken(), 0);
}

TEST_P(TransportEndsTest, NothingIsMovedForARequestThatIsNotExposed) {
  std::vector<TransferEndPtr> ends;
  for (uint64_t id = 1; id <= 20; ++id) {
    const Kind kind = id % 2 == 0 ? Kind::kWrite : Kind::kRead;
    ends.push_back(Start(kind, {id, 0}, SlotFor(kind, static_cast<uint32_t>(id))));
  }
  ASSERT_TRUE(WaitForEnds(ends));
  for (size_t i = 0; i < ends.size(); ++i) {
    EXPECT_EQ(ends[i]->finished, 1);
    if (i % 2 == 0) {
      EXPECT_EQ(ends[i]->status, TransferStatus::kCancelled);
    }
  }
  ExpectLinkWorks();
}

TEST_P(TransportEndsTest, AnItemThatTheRequestLacksMovesNothing) {
  for (Kind kind : {Kind::kWrite, Kind::kRead}) {
    link_ = GetParam().make();
    auto request = NewRequest();
    request->Add(Shape::kContiguous, kBlockBytes, kIdentity);
    link_->client().Expose(1, request);
    const auto end = Start(kind, {1, 1}, SlotFor(kind, 0));
    ASSERT_TRUE(WaitForEnds({end}));
    EXPECT_EQ(end->finished, 1);
    NudgeTimes(3);
    EXPECT_EQ((*request)[0].reports(), 0);
    EXPECT_TRUE((*request)[0].memory.Untouched());
    EXPECT_EQ(link_->client().Withdraw(1, [] {}), Release::kReleased);
  }
}

TEST_P(TransportEndsTest, NothingStartsAfterItsDeadline) {
  for (Kind kind : {Kind::kWrite, Kind::kRead}) {
    const uint64_t id = kind == Kind::kWrite ? 1 : 2;
    auto request = NewRequest();
    request->Add(Shape::kContiguous, kBlockBytes, kIdentity);
    link_->client().Expose(id, request);
    auto transfer = std::make_unique<TestTransfer>(kind, ItemId{id, 0}, SlotFor(kind, 0));
    transfer->deadline_ns = Clock::Real()->NowNs() - 1;
    const auto end = Start(std::move(transfer));
    ASSERT_TRUE(WaitForEnds({end}));
    EXPECT_EQ(end->status, TransferStatus::kCancelled);
    EXPECT_EQ(end->finished, 1);
    ExpectLinkWorks();
    EXPECT_EQ((*request)[0].reports(), 0);
    EXPECT_TRUE((*request)[0].memory.Untouched());
  }
}

// What one client thread does: requests of some items, each with a payload of its own.
class Worker {
 public:
  Worker(Link* link, uint64_t first_id, uint64_t seed) : link_(link), first_id_(first_id), random_(seed) {}

  void Run() {
    constexpr uint64_t kRequests = 15;
    for (uint64_t id = first_id_; id < first_id_ + kRequests; ++id) OneRequest(id);
    done = true;
  }
  std::atomic<bool> done{false};
  std::atomic<bool> given_up{false};

 private:
  void OneRequest(uint64_t id) {
    TestRequest& request = *requests_.emplace_back(std::make_shared<TestRequest>());
    std::vector<Bytes> payloads;
    std::vector<TestSlot*> slots;
    for (uint32_t i = 0; i < 4; ++i) {
      payloads.push_back(Payload(id * 10 + i, 1 + random_() % 200'000));
      request.Add(kShapes[random_() % std::size(kShapes)], payloads[i].size(), id);
      if (IsRead(i)) request[i].memory.Fill(payloads[i]);
      slots.push_back(IsRead(i) ? &slots_.emplace_back(payloads[i].size()) : &slots_.emplace_back(payloads[i], id));
    }
    link_->client().Expose(id, requests_.back());
    std::vector<TransferEndPtr> ends;
    for (uint32_t i = 0; i < 4; ++i) {
      auto transfer = std::make_unique<TestTransfer>(IsRead(i) ? Kind::kRead : Kind::kWrite, ItemId{id, i}, slots[i]);
      ends.push_back(transfer->end());
      link_->server().Start(std::move(transfer));
    }
    for (uint32_t i = 0; i < 4; ++i) {
      while (!given_up && (!ends[i]->done() || request[i].reports() == 0)) Pause();
      EXPECT_EQ(ends[i]->status, TransferStatus::kOk);
      EXPECT_EQ(ends[i]->finished, 1);
      EXPECT_EQ(IsRead(i) ? request[i].sent : request[i].arrived, 1);
      EXPECT_TRUE(IsRead(i) ? slots[i]->Holds(payloads[i]) : request[i].memory.Holds(payloads[i]));
    }
    std::atomic<int>& released = releases_.emplace_back(0);
    if (link_->client().Withdraw(id, [&] { ++released; }) == Release::kReleased) ++released;
    while (!given_up && released == 0) Pause();
  }
  static void Pause() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }
  static bool IsRead(uint32_t item) { return item % 2 == 1; }

  Link* const link_;
  const uint64_t first_id_;
  std::mt19937_64 random_;
  std::deque<std::shared_ptr<TestRequest>> requests_;
  std::deque<TestSlot> slots_;
  std::deque<std::atomic<int>> releases_;
};

TEST_P(TransportEndsTest, RequestsFromManyThreadsDoNotMix) {
  TestRandom random;
  std::deque<Worker> workers;
  for (uint64_t i = 0; i < 4; ++i) workers.emplace_back(link_.get(), 1 + i * 1000, random.Between(0, ~0ull));
  std::vector<std::thread> threads;
  threads.reserve(workers.size());
  for (Worker& worker : workers) threads.emplace_back([&worker] { worker.Run(); });
  const bool all_done = Wait([&] {
    return std::all_of(workers.begin(), workers.end(), [](const Worker& worker) { return worker.done.load(); });
  });
  EXPECT_TRUE(all_done);
  for (Worker& worker : workers) worker.given_up = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(link_->broken(), 0);
  link_.reset();
}

TEST_P(TransportEndsTest, AThousandCancelsInARowLeaveNothingBehind) {
  constexpr uint64_t kCancels = 1000;
  constexpr size_t kBytes = 100'000;
  TestRandom random;
  TestSlot* slot = NewSlot(Payload(1, kBytes), kIdentity);
  std::vector<TransferEndPtr> ends;
  std::vector<std::weak_ptr<TestRequest>> requests;
  std::atomic<uint64_t> released{0};
  for (uint64_t id = 1; id <= kCancels; ++id) {
    auto request = NewRequest();
    request->Add(Shape::kContiguous, kBytes, kIdentity);
    requests.push_back(request);
    link_->client().Expose(id, request);
    const bool write = random.Chance(0.5);
    ends.push_back(Start(write ? Kind::kWrite : Kind::kRead, {id, 0}, write ? slot : NewSlot(kBytes)));
    for (uint64_t i = random.Between(0, 3); i > 0; --i) link_->Nudge();
    const bool server_first = random.Chance(0.5);
    if (server_first) link_->server().Cancel(id);
    if (link_->client().Withdraw(id, [&] { ++released; }) == Release::kReleased) ++released;
    if (!server_first) link_->server().Cancel(id);
  }
  ASSERT_TRUE(WaitForEnds(ends));
  ASSERT_TRUE(Wait([&] { return released >= kCancels; }));
  ASSERT_TRUE(Wait([&] {
    return std::all_of(requests.begin(), requests.end(), [](const auto& request) { return request.expired(); });
  })) << "the channel keeps withdrawn requests";
  EXPECT_EQ(released, kCancels);
  for (const TransferEndPtr& end : ends) EXPECT_EQ(end->finished, 1);
  ExpectLinkWorks();
}

}  // namespace
}  // namespace quarry::transport
