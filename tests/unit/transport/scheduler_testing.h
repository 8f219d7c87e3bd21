// A scheduler with channels that are fakes: they keep what is started until the test
// finishes it, or finish it at once.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_SCHEDULER_TESTING_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_SCHEDULER_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "server/scheduler/transfer_scheduler.h"

namespace quarry::server {

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

}  // namespace quarry::server

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_SCHEDULER_TESTING_H_
