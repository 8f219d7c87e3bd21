// What KernelEngine does with a kernel that has no room, refuses, or gives requests back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "server/ssd/io/kernel_engine.h"
#include "tests/unit/server/ssd_io_testing.h"

namespace quarry::server {
namespace {

using ::testing::ElementsAre;

// What the kernel says, in turn; afterwards it starts and ends everything.
struct Script {
  std::deque<int> starts;
  std::deque<int64_t> ends;
  std::vector<std::thread::id> started_by;  // each time it was asked
};

// FAKE: ends at once what it starts.
class FakeKernelQueue : public KernelQueue {
 public:
  FakeKernelQueue(int event_fd, Script* script) : event_fd_(event_fd), script_(script) {}

  int Start(KernelOp* op) override {
    const std::lock_guard lock(mutex_);
    script_->started_by.push_back(std::this_thread::get_id());
    if (const int error = Next(&script_->starts); error != 0) return error;
    ended_.push_back({op, Next(&script_->ends)});
    eventfd_write(event_fd_, 1);
    return 0;
  }
  size_t Collect(absl::Span<EndedOp> ended) override {
    const std::lock_guard lock(mutex_);
    const size_t count = std::min(ended.size(), ended_.size());
    for (size_t i = 0; i < count; ++i) {
      ended[i] = ended_.front();
      ended_.pop_front();
    }
    return count;
  }

 private:
  template <typename Int>
  static Int Next(std::deque<Int>* said) {
    if (said->empty()) return 0;
    const Int next = said->front();
    said->pop_front();
    return next;
  }

  const int event_fd_;
  Script* const script_;
  std::mutex mutex_;
  std::deque<EndedOp> ended_;
};

std::unique_ptr<IoEngine> Make(Script* script) {
  UniqueFd event = *MakeEvent();
  auto queue = std::make_unique<FakeKernelQueue>(event.get(), script);
  return std::make_unique<KernelEngine>("fake", 8, std::move(event), std::move(queue));
}

// Nothing is in flight whose end would be the occasion.
TEST(KernelEngineTest, WhatThereIsNoRoomForIsOfferedAgainThoughNothingEnds) {
  Script script{.starts = {-EAGAIN, -EBUSY, -EAGAIN, -EAGAIN}, .ends = {7}};
  EXPECT_EQ(Result(Make(&script).get(), Sync(1)), 7);
  EXPECT_EQ(script.started_by.size(), 5u);
}

TEST(KernelEngineTest, WhatWaitsForRoomKeepsItsOrder) {
  Script script{.starts = {-EAGAIN, -EAGAIN, -EAGAIN, -EAGAIN}, .ends = {1, 2, 3}};
  Results results(3);
  {
    const auto engine = Make(&script);
    for (size_t i = 0; i < 3; ++i) engine->Submit(Sync(1, results.Take(i)));
  }
  EXPECT_THAT(results.All(), ElementsAre(1, 2, 3));
}

TEST(KernelEngineTest, WhatIsRefusedEndsWithTheReason) {
  Script script{.starts = {-EPERM}, .ends = {7}};
  const auto engine = Make(&script);
  EXPECT_EQ(Result(engine.get(), Sync(1)), -EPERM);
  EXPECT_EQ(Result(engine.get(), Sync(1)), 7);
}

TEST(KernelEngineTest, WhatTheKernelGivesBackIsSubmittedAgainByTheEngine) {
  for (const int error : {EFAULT, ECANCELED, EINTR, EAGAIN}) {
    Script script{.ends = {-error, -error, 7}};
    EXPECT_EQ(Result(Make(&script).get(), Sync(1)), 7);
    ASSERT_EQ(script.started_by.size(), 3u);
    EXPECT_EQ(script.started_by[0], std::this_thread::get_id());
    EXPECT_NE(script.started_by[1], std::this_thread::get_id());
  }
}

TEST(KernelEngineTest, WhatTheKernelGivesBackForEverIsAnError) {
  Script script{.ends = std::deque<int64_t>(1000, -EAGAIN)};
  EXPECT_EQ(Result(Make(&script).get(), Sync(1)), -EAGAIN);
}

TEST(KernelEngineTest, OtherErrorsAreNotTriedAgain) {
  Script script{.ends = {-EIO, 7}};
  EXPECT_EQ(Result(Make(&script).get(), Sync(1)), -EIO);
  EXPECT_EQ(script.started_by.size(), 1u);
}

}  // namespace
}  // namespace quarry::server
