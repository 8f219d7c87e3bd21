#include "server/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "common/clock.h"
#include "server/session/loop_heartbeat.h"

namespace quarry::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class HealthTest : public testing::Test {
 protected:
  HealthTest() {
    in_.used = {10, 100};
    in_.sessions = {0, 4};
    in_.gets = in_.puts = in_.watches = {0, 4};
    in_.http_connections = {0, 4};
  }
  // After that long.
  AdminHooks::Part Part(const std::string& name, int64_t later_ns = Health::kPeriodNs) {
    in_.now_ns += later_ns;
    health_.Update(in_);
    for (const AdminHooks::Part& part : health_.report().parts) {
      EXPECT_FALSE(part.detail.empty()) << part.name;
      if (part.name == name) return part;
    }
    ADD_FAILURE() << "no part " << name;
    return {};
  }

  HealthInputs in_;
  Health health_;
};

TEST_F(HealthTest, MemoryIsAskedForTheShareOfPutsThatFoundNoRoomLately) {
  in_.refused_puts = 1'000;  // long ago
  EXPECT_TRUE(Part("memory").healthy);
  in_.stored_shards += 99;
  in_.refused_puts += 1;
  const AdminHooks::Part part = Part("memory");
  EXPECT_FALSE(part.healthy);
  EXPECT_THAT(part.detail, HasSubstr("1 of 100 puts within 10s"));
  EXPECT_TRUE(health_.report().ready);
  in_.stored_shards += 1;
  EXPECT_TRUE(Part("memory").healthy) << "less than one in a hundred";
  in_.refused_puts += 1;
  EXPECT_FALSE(Part("memory").healthy);
  EXPECT_FALSE(Part("memory", Health::kWindowNs - 1).healthy);
  EXPECT_TRUE(Part("memory", Health::kPeriodNs).healthy) << "it is beyond the window";
}

TEST_F(HealthTest, TransfersThatWaitThoughNothingMovesAreTheSchedulersFault) {
  in_.transfers_queued = 3;
  EXPECT_TRUE(Part("scheduler").healthy);
  EXPECT_TRUE(Part("scheduler", Health::kLateNs - 1).healthy);
  in_.bytes_in_flight = 1;  // a slow client
  EXPECT_TRUE(Part("scheduler", 1).healthy);
  in_.bytes_in_flight = 0;
  EXPECT_TRUE(Part("scheduler", Health::kLateNs).healthy);
  const AdminHooks::Part part = Part("scheduler", Health::kLateNs);
  EXPECT_FALSE(part.healthy);
  EXPECT_THAT(part.detail, HasSubstr("though nothing moves"));
  EXPECT_FALSE(health_.report().ready);
  EXPECT_THAT(health_.WhyNotReady(), HasSubstr("scheduler: transfers have waited"));
  in_.transfers_queued = 0;
  EXPECT_TRUE(Part("scheduler").healthy);
  EXPECT_THAT(health_.WhyNotReady(), IsEmpty());
}

TEST_F(HealthTest, AFailedChecksumIsNotForgotten) {
  in_.corrupt = 1;
  EXPECT_FALSE(Part("integrity").healthy);
  EXPECT_FALSE(Part("integrity", 100 * Health::kWindowNs).healthy);
  EXPECT_TRUE(health_.report().ready);
}

TEST(LoopHeartbeatTest, ALoopThatIsHeldUpIsLateUntilItComesRoundAgain) {
  EventLoop loop("held");
  LoopHeartbeat beat(&loop);
  EXPECT_EQ(beat.Beat(1'000), 0);
  loop.Run([] {});  // the answer came before
  EXPECT_EQ(beat.Beat(2'000), 0);
  loop.Run([] {});

  std::mutex mutex;
  std::condition_variable changed;
  bool held = true;
  loop.Post([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return !held; });
  });
  EXPECT_EQ(beat.Beat(3'000), 0);
  EXPECT_EQ(beat.Beat(4'000), 1'000);
  EXPECT_EQ(beat.Beat(9'000), 6'000);
  {
    std::lock_guard lock(mutex);
    held = false;
  }
  changed.notify_one();
  loop.Run([] {});
  EXPECT_EQ(beat.Beat(10'000), 0);
  loop.Run([] {});
}

}  // namespace
}  // namespace quarry::server
