#include <random>
#include <thread>

#include "tests/unit/common/test_seed.h"
#include "tests/unit/transport/scheduler_testing.h"

namespace quarry::server {
namespace {

TEST_F(TransferSchedulerTest, ASessionsBytesInFlightAreBounded) {
  Create({.session_bytes_in_flight = 1000});
  Session session = AddSession();
  Submit(session, 1, 50, 300);
  EXPECT_EQ(session.channel->in_flight(), 3u);
  EXPECT_EQ(metrics_.transfers_queued, 47u);
  EXPECT_EQ(metrics_.bytes_in_flight, 900u);
  while (session.channel->FinishOne()) {
  }
  EXPECT_EQ(session.channel->max_bytes_in_flight, 900u);
  EXPECT_EQ(ends_.of(TransferStatus::kOk), 50);
  ExpectNothingLeft();
}

TEST_F(TransferSchedulerTest, TransfersAreCountedByHowTheyEnd) {
  Create({});
  Session session = AddSession();
  Submit(session, 1, 3, 5000);
  session.channel->FinishOne();
  session.channel->FinishOne(TransferStatus::kChecksum);
  session.channel->FinishOne();
  TransferMetrics& writes = metrics_.transfers_of(Transfer::Kind::kWrite);
  EXPECT_EQ(writes.ended[static_cast<size_t>(TransferStatus::kOk)], 2u);
  EXPECT_EQ(writes.ended[static_cast<size_t>(TransferStatus::kChecksum)], 1u);
  EXPECT_EQ(writes.bytes.sum(), 10'000u);
  uint64_t timed = 0;
  for (const uint64_t count : writes.latency.snapshot().counts) timed += count;
  EXPECT_EQ(timed, 2u);
  EXPECT_EQ(metrics_.transfers_of(Transfer::Kind::kRead).bytes.sum(), 0u);
}

TEST_F(TransferSchedulerTest, ATransferLargerThanTheBoundMovesAlone) {
  Create({.session_bytes_in_flight = 1000, .node_bytes_in_flight = 1500});
  Session session = AddSession();
  Submit(session, 1, 3, 5000);
  EXPECT_EQ(session.channel->in_flight(), 1u);
  Submit(session, 2, 1, 1);
  while (session.channel->FinishOne()) {
  }
  EXPECT_EQ(session.channel->max_bytes_in_flight, 5000u);
  EXPECT_EQ(ends_.of(TransferStatus::kOk), 4);
  ExpectNothingLeft();
}

TEST_F(TransferSchedulerTest, TheNodesBytesInFlightAreBounded) {
  Create({.session_bytes_in_flight = 1000, .node_bytes_in_flight = 2500});
  std::vector<Session> sessions;
  sessions.reserve(10);
  for (int i = 0; i < 10; ++i) sessions.push_back(AddSession(static_cast<uint32_t>(i % 3)));
  for (const Session& session : sessions) Submit(session, 1, 20, 400);
  uint64_t most = metrics_.bytes_in_flight;
  EXPECT_EQ(most, 2400u);
  bool some = true;
  while (some) {
    some = false;
    for (const Session& session : sessions) {
      some |= session.channel->FinishOne();
      most = std::max(most, metrics_.bytes_in_flight.load());
    }
  }
  EXPECT_LE(most, 2500u);
  EXPECT_EQ(ends_.of(TransferStatus::kOk), 200);
  ExpectNothingLeft();
}

TEST_F(TransferSchedulerTest, HigherPriorityGoesFirstWithinATenant) {
  Create({.session_bytes_in_flight = 1 << 20, .node_bytes_in_flight = 100});
  Session sessions[2] = {AddSession(), AddSession()};
  std::vector<uint64_t> order;  // of requests; the request is 10 * priority + session
  for (uint64_t s = 0; s < 2; ++s) {
    sessions[s].channel->on_start = [&](const Transfer& transfer) { order.push_back(transfer.id.request); };
    for (uint32_t priority : {0u, 5u, 2u, 7u, 7u}) Submit(sessions[s], priority * 10 + s, 2, 100, priority);
  }
  Submit(sessions[0], 990, 1, 100, /*priority=*/99);  // as high as there is
  bool some = true;
  while (some) some = sessions[0].channel->FinishOne() || sessions[1].channel->FinishOne();
  ASSERT_EQ(order.size(), 21u);
  // The first was started before there was a choice.
  for (size_t i = 2; i < order.size(); ++i) {
    const auto priority = [](uint64_t request) { return std::min<uint64_t>(request / 10, 7); };
    EXPECT_LE(priority(order[i]), priority(order[i - 1])) << "at " << i;
  }
  ExpectNothingLeft();
}

TEST_F(TransferSchedulerTest, SessionsOfATenantTakeTurns) {
  Create({.session_bytes_in_flight = 1 << 20, .node_bytes_in_flight = 100});
  std::vector<int> order;
  std::vector<Session> sessions;
  for (int s = 0; s < 3; ++s) {
    sessions.push_back(AddSession());
    sessions.back().channel->on_start = [&order, s](const Transfer&) { order.push_back(s); };
  }
  Submit(sessions[0], 1, 1000, 100);
  Submit(sessions[1], 1, 10, 100);
  Submit(sessions[2], 1, 10, 100);
  bool some = true;
  while (some) {
    some = false;
    for (Session& session : sessions) some |= session.channel->FinishOne();
  }
  // However much the first one has queued, the others are through after their turns.
  const auto last = [&](int s) { return std::find(order.rbegin(), order.rend(), s).base() - order.begin(); };
  EXPECT_LE(last(1), 33);
  EXPECT_LE(last(2), 33);
  EXPECT_EQ(order.size(), 1020u);
  ExpectNothingLeft();
}

TEST_F(TransferSchedulerTest, ASessionsTransfersStartInOrder) {
  Create({.session_bytes_in_flight = 500});
  Session session = AddSession();
  uint32_t next = 0;
  session.channel->on_start = [&](const Transfer& transfer) { EXPECT_EQ(transfer.id.item, next++); };
  Submit(session, 1, 100, 100);
  while (session.channel->FinishOne()) {
  }
  EXPECT_EQ(next, 100u);
}

TEST_F(TransferSchedulerTest, ASlowClientDoesNotHoldUpOthers) {
  Create({.session_bytes_in_flight = 1000});
  Session slow = AddSession();
  Session fast = AddSession();
  Submit(slow, 1, 100, 100, /*priority=*/7);
  Submit(fast, 1, 100, 100);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(fast.channel->FinishOne());
  EXPECT_EQ(slow.channel->started, 10);
}

TEST_F(TransferSchedulerTest, RemovingASessionFinishesWhatIsQueuedOnce) {
  Create({.session_bytes_in_flight = 1000});
  Session session = AddSession();
  Session other = AddSession();
  Submit(session, 1, 100, 100);
  Submit(other, 1, 20, 100);
  scheduler_->RemoveSession(session.id);
  EXPECT_EQ(ends_.of(TransferStatus::kClosed), 90);
  EXPECT_EQ(metrics_.bytes_in_flight, 1000u) << "the other session's";
  EXPECT_EQ(metrics_.transfers_queued, 10u);
  scheduler_->RemoveSession(session.id);
  Submit(session, 2, 5, 100);
  EXPECT_EQ(ends_.of(TransferStatus::kClosed), 95) << "what comes too late is finished as well";
  scheduler_->Cancel(session.id, 1);
  EXPECT_EQ(session.channel->cancels, 0);
  session.channel->Close();
  EXPECT_EQ(ends_.of(TransferStatus::kClosed), 105);
  while (other.channel->FinishOne()) {
  }
  EXPECT_EQ(ends_.of(TransferStatus::kOk), 20);
  ExpectNothingLeft();
}

TEST_F(TransferSchedulerTest, CancelEndsTheQueuedAndTellsTheChannelOfTheStarted) {
  Create({.session_bytes_in_flight = 1000});
  Session session = AddSession();
  Submit(session, 1, 15, 100);
  Submit(session, 2, 15, 100, /*priority=*/3);
  Submit(session, 3, 15, 100);
  scheduler_->Cancel(session.id, 1);
  EXPECT_EQ(session.channel->cancels, 1);
  EXPECT_EQ(ends_.of(TransferStatus::kCancelled), 15);
  scheduler_->Cancel(session.id, 1);
  scheduler_->Cancel(session.id, 77);
  EXPECT_EQ(ends_.of(TransferStatus::kCancelled), 15);
  while (session.channel->FinishOne()) {
  }
  EXPECT_EQ(ends_.of(TransferStatus::kOk), 30);
  EXPECT_EQ(ends_.finished, 45);
  ExpectNothingLeft();
}

// Cancel comes after the transfer has left the queue and before the channel has it.
TEST_F(TransferSchedulerTest, ACancelDuringStartReachesTheTransfer) {
  Create({});
  Session session = AddSession();
  session.channel->on_start = [&](const Transfer& transfer) {
    std::thread([&] { scheduler_->Cancel(session.id, transfer.id.request); }).join();
  };
  Submit(session, 1, 1, 100);
  EXPECT_EQ(ends_.of(TransferStatus::kCancelled), 1);
  EXPECT_EQ(session.channel->in_flight(), 0u);
  ExpectNothingLeft();
}

TEST_F(TransferSchedulerTest, AFullQueueRefusesTheWholeBatch) {
  Create({.session_bytes_in_flight = 100, .max_queued_per_session = 10});
  Session session = AddSession();
  Submit(session, 1, 10, 100);
  EXPECT_EQ(metrics_.transfers_queued, 9u);
  Submit(session, 2, 2, 100);
  EXPECT_EQ(ends_.of(TransferStatus::kCancelled), 2);
  Submit(session, 3, 1, 100);
  while (session.channel->FinishOne()) {
  }
  EXPECT_EQ(ends_.of(TransferStatus::kOk), 11);
  ExpectNothingLeft();
}

TEST_F(TransferSchedulerTest, ChannelsThatFinishAtOnceDoNotRecurse) {
  Create({.session_bytes_in_flight = 1000});
  Session session = AddSession();
  session.channel->synchronous = true;
  Submit(session, 1, 100'000, 1000);
  EXPECT_EQ(ends_.of(TransferStatus::kOk), 100'000);
  EXPECT_EQ(session.channel->max_depth, 1);
  ExpectNothingLeft();
}

TEST_F(TransferSchedulerTest, ThreadsThatSubmitCancelAndFinishLoseNothing) {
  TestRandom random;
  Create({.session_bytes_in_flight = 2000, .node_bytes_in_flight = 5000});
  std::vector<Session> sessions;
  for (uint32_t i = 0; i < 4; ++i) sessions.push_back(AddSession(i % 2, 1 + i));
  constexpr int kRounds = 300;
  std::atomic<bool> submitting{true};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t, seed = random.Between(0, ~0ull)] {
      std::mt19937_64 engine(seed);
      for (int round = 0; round < kRounds; ++round) {
        const Session& session = sessions[engine() % sessions.size()];
        const uint64_t request = static_cast<uint64_t>(round) * 2 + t + 1;
        Submit(session, request, 10, 1 + engine() % 1000, static_cast<uint32_t>(engine() % 8));
        if (engine() % 3 == 0) scheduler_->Cancel(session.id, request);
      }
    });
  }
  std::thread finisher([&] {
    while (submitting || metrics_.transfers_queued != 0) {
      for (Session& session : sessions) session.channel->FinishOne();
    }
  });
  for (std::thread& thread : threads) thread.join();
  submitting = false;
  finisher.join();
  for (Session& session : sessions) {
    while (session.channel->FinishOne()) {
    }
  }
  EXPECT_EQ(ends_.finished, 2 * kRounds * 10);
  ExpectNothingLeft();
}

}  // namespace
}  // namespace quarry::server
