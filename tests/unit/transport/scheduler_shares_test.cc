#include <map>

#include "tests/unit/transport/scheduler_testing.h"

namespace quarry::server {
namespace {

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

}  // namespace
}  // namespace quarry::server
