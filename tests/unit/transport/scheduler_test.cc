#include "server/scheduler/transfer_scheduler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <thread>

#include "tests/unit/common/test_seed.h"

namespace quarry {
namespace {

using transport::ItemId;
using transport::ServerChannel;
using transport::Transfer;
using transport::TransferStatus;

// How the transfers of a test ended.
struct Ends {
  std::atomic<int> live{0};
  std::atomic<int> finished{0};
  std::array<std::atomic<int>, 5> by_status{};
  int of(TransferStatus status) const { return by_status[static_cast<size_t>(status)]; }
};

class TestTransfer : public Transfer {
 public:
  TestTransfer(Ends* ends, ItemId item, size_t size) : ends_(ends) {
    id = item;
    bytes = payload_bytes = size;
    ++ends_->live;
  }
  ~TestTransfer() override { --ends_->live; }
  void Finish(TransferStatus status) override {
    EXPECT_FALSE(std::exchange(done_, true)) << "finished twice";
    ++ends_->finished;
    ++ends_->by_status[static_cast<size_t>(status)];
  }

 private:
  Ends* const ends_;
  bool done_ = false;
};

// A fake channel: keeps what is started until the test finishes it, or finishes it at once.
class FakeChannel : public ServerChannel {
 public:
  void Start(std::unique_ptr<Transfer> transfer) override {
    if (on_start) on_start(*transfer);
    ++started;
    if (synchronous) {
      ++depth_;
      max_depth = std::max(max_depth, depth_);
      transfer->Finish(TransferStatus::kOk);
      transfer.reset();
      --depth_;
      return;
    }
    std::lock_guard lock(mutex_);
    bytes_in_flight += transfer->bytes;
    max_bytes_in_flight = std::max(max_bytes_in_flight, bytes_in_flight);
    in_flight_.push_back(std::move(transfer));
  }
  void Cancel(uint64_t request) override {
    ++cancels;
    FinishIf([&](const Transfer& transfer) { return transfer.id.request == request; }, TransferStatus::kCancelled);
  }
  void Close() override {
    FinishIf([](const Transfer&) { return true; }, TransferStatus::kClosed);
  }
  bool AddStream(int, EventLoop*) override { return false; }
  const char* transport_name() const override { return "fake"; }

  // The oldest one ends. False: there is none.
  bool FinishOne(TransferStatus status = TransferStatus::kOk) {
    std::unique_ptr<Transfer> transfer;
    {
      std::lock_guard lock(mutex_);
      if (in_flight_.empty()) return false;
      transfer = std::move(in_flight_.front());
      in_flight_.pop_front();
      bytes_in_flight -= transfer->bytes;
    }
    transfer->Finish(status);
    return true;
  }
  void FinishIf(const std::function<bool(const Transfer&)>& condition, TransferStatus status) {
    std::vector<std::unique_ptr<Transfer>> ended;
    {
      std::lock_guard lock(mutex_);
      for (auto& transfer : in_flight_) {
        if (!condition(*transfer)) continue;
        bytes_in_flight -= transfer->bytes;
        ended.push_back(std::move(transfer));
      }
      std::erase(in_flight_, nullptr);
    }
    for (auto& transfer : ended) transfer->Finish(status);
  }
  size_t in_flight() {
    std::lock_guard lock(mutex_);
    return in_flight_.size();
  }

  std::function<void(const Transfer&)> on_start;
  bool synchronous = false;
  std::atomic<int> started{0};
  std::atomic<int> cancels{0};
  int max_depth = 0;
  uint64_t bytes_in_flight = 0;
  uint64_t max_bytes_in_flight = 0;

 private:
  int depth_ = 0;
  std::mutex mutex_;
  std::deque<std::unique_ptr<Transfer>> in_flight_;
};

class TransferSchedulerTest : public ::testing::Test {
 protected:
  struct Session {
    std::shared_ptr<FakeChannel> channel;
    TransferScheduler::SessionId id = 0;
  };

  void Create(TransferSchedulerOptions options) {
    scheduler_ = std::make_unique<TransferScheduler>(options, &metrics_);
  }
  Session AddSession(uint32_t tenant = 0, uint32_t weight = 1) {
    Session session;
    session.channel = std::make_shared<FakeChannel>();
    session.id = scheduler_->AddSession(tenant, weight, session.channel);
    return session;
  }
  void Submit(const Session& session, uint64_t request, size_t count, size_t bytes, uint32_t priority = 0) {
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (uint32_t i = 0; i < count; ++i) {
      transfers.push_back(std::make_unique<TestTransfer>(&ends_, ItemId{request, i}, bytes));
    }
    scheduler_->Submit(session.id, priority, std::move(transfers));
  }
  void ExpectNothingLeft() {
    EXPECT_EQ(metrics_.transfers_queued, 0u);
    EXPECT_EQ(metrics_.bytes_in_flight, 0u);
    EXPECT_EQ(ends_.live, 0);
  }

  ServiceMetrics metrics_;
  Ends ends_;
  std::unique_ptr<TransferScheduler> scheduler_;
};

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

// Serves the tenants one transfer at a time, and returns how many bytes each one moved
// while all of them had something queued.
std::map<uint32_t, uint64_t> Shares(TransferScheduler* scheduler, Ends* ends,
                                    const std::map<uint32_t, std::pair<uint32_t, size_t>>& weight_and_bytes) {
  std::map<uint32_t, uint64_t> moved;
  std::map<uint32_t, std::shared_ptr<FakeChannel>> channels;
  constexpr uint64_t kBytesEach = 2'000'000;
  bool counting = true;
  std::vector<std::function<void()>> submits;
  for (const auto& [tenant, about] : weight_and_bytes) {
    auto channel = std::make_shared<FakeChannel>();
    const auto [weight, bytes] = about;
    const auto id = scheduler->AddSession(tenant, weight, channel);
    channel->on_start = [&moved, &counting, tenant = tenant](const Transfer& transfer) {
      if (!counting) return;
      moved[tenant] += transfer.bytes;
      if (moved[tenant] >= kBytesEach) counting = false;  // soon it has nothing left
    };
    submits.push_back([scheduler, ends, id, bytes = bytes] {
      std::vector<std::unique_ptr<Transfer>> transfers;
      for (uint32_t i = 0; i * bytes < kBytesEach + bytes; ++i) {
        transfers.push_back(std::make_unique<TestTransfer>(ends, ItemId{1, i}, bytes));
      }
      scheduler->Submit(id, 0, std::move(transfers));
    });
    channels[tenant] = channel;
  }
  for (const auto& submit : submits) submit();
  bool some = true;
  while (some) {
    some = false;
    for (auto& [tenant, channel] : channels) some |= channel->FinishOne();
  }
  return moved;
}

TEST_F(TransferSchedulerTest, TenantsShareByWeight) {
  Create({.session_bytes_in_flight = 1 << 20, .node_bytes_in_flight = 1000});
  const auto moved = Shares(scheduler_.get(), &ends_, {{1, {1, 1000}}, {2, {2, 1000}}, {3, {5, 1000}}});
  const double unit = static_cast<double>(moved.at(3)) / 5;
  EXPECT_NEAR(static_cast<double>(moved.at(1)) / unit, 1.0, 0.03);
  EXPECT_NEAR(static_cast<double>(moved.at(2)) / unit, 2.0, 0.06);
}

TEST_F(TransferSchedulerTest, SharesAreOfBytesNotOfTransfers) {
  Create({.session_bytes_in_flight = 1 << 20, .node_bytes_in_flight = 4000});
  const auto moved = Shares(scheduler_.get(), &ends_, {{1, {1, 100}}, {2, {1, 4000}}, {3, {3, 700}}});
  const double unit = static_cast<double>(moved.at(3)) / 3;
  EXPECT_NEAR(static_cast<double>(moved.at(1)) / unit, 1.0, 0.05);
  EXPECT_NEAR(static_cast<double>(moved.at(2)) / unit, 1.0, 0.05);
}

TEST_F(TransferSchedulerTest, ALargeWeightDoesNotStarveOthersOfTinyTransfers) {
  Create({.session_bytes_in_flight = 1 << 20, .node_bytes_in_flight = 64});
  const auto moved = Shares(scheduler_.get(), &ends_, {{1, {1, 16}}, {2, {1000, 16}}});
  EXPECT_GT(moved.at(1), 0u);
}

TEST_F(TransferSchedulerTest, AnIdleTenantSavesNothingUp) {
  Create({.session_bytes_in_flight = 1 << 20, .node_bytes_in_flight = 100});
  Session busy = AddSession(1);
  Session late = AddSession(2);
  Submit(busy, 1, 1000, 100);
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(busy.channel->FinishOne());
  Submit(late, 1, 1000, 100);
  const int busy_before = busy.channel->started;
  for (int i = 0; i < 400; ++i) {
    if (!busy.channel->FinishOne()) late.channel->FinishOne();
  }
  EXPECT_NEAR(late.channel->started, 200, 3);
  EXPECT_NEAR(busy.channel->started - busy_before, 200, 3);
  busy.channel->FinishOne();
  scheduler_->RemoveSession(busy.id);
  scheduler_->RemoveSession(late.id);
  busy.channel->Close();
  late.channel->Close();
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
}  // namespace quarry
