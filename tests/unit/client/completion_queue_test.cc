#include "quarry/completion_queue.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "client/completion_queue_impl.h"

namespace quarry {
namespace {

bool Readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

Completion Numbered(uint64_t n) {
  Completion completion;
  completion.operation = n;
  return completion;
}

TEST(CompletionQueueTest, AnEmptyQueueHasNothingAndDoesNotWait) {
  CompletionQueue queue;
  EXPECT_GE(queue.fd(), 0);
  EXPECT_FALSE(Readable(queue.fd()));
  EXPECT_FALSE(queue.TryNext().has_value());
  EXPECT_FALSE(queue.Next(0).has_value());
  EXPECT_FALSE(queue.Next(1).has_value());
}

TEST(CompletionQueueTest, TheDescriptorIsReadableWhileCompletionsWait) {
  CompletionQueue::Impl queue(CompletionQueue::Impl::Wakeup::kEventFd);
  for (int round = 0; round < 3; ++round) {
    queue.Push(Numbered(1));
    queue.Push(Numbered(2));
    EXPECT_TRUE(Readable(queue.fd()));
    EXPECT_EQ(queue.TryNext()->operation, 1u);
    EXPECT_TRUE(Readable(queue.fd()));
    EXPECT_EQ(queue.TryNext()->operation, 2u);
    EXPECT_FALSE(Readable(queue.fd()));
  }
}

TEST(CompletionQueueTest, AWaiterIsWokenByEachCompletion) {
  for (const auto wakeup : {CompletionQueue::Impl::Wakeup::kEventFd, CompletionQueue::Impl::Wakeup::kWaitOnly}) {
    CompletionQueue::Impl queue(wakeup);
    constexpr uint64_t kCount = 2'000;
    std::thread producer([&] {
      for (uint64_t i = 1; i <= kCount; ++i) queue.Push(Numbered(i));
    });
    for (uint64_t i = 1; i <= kCount; ++i) ASSERT_EQ(queue.Next(-1)->operation, i);
    producer.join();
    EXPECT_FALSE(queue.TryNext().has_value());
  }
}

TEST(CompletionQueueTest, NoCompletionIsMissedByAPollingReader) {
  CompletionQueue::Impl queue(CompletionQueue::Impl::Wakeup::kEventFd);
  constexpr uint64_t kCount = 2'000;
  std::thread producer([&] {
    for (uint64_t i = 1; i <= kCount; ++i) queue.Push(Numbered(i));
  });
  uint64_t seen = 0;
  while (seen < kCount) {
    pollfd entry{queue.fd(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 60'000), 1);
    while (queue.TryNext().has_value()) ++seen;
  }
  producer.join();
  EXPECT_FALSE(Readable(queue.fd()));
}

}  // namespace
}  // namespace quarry
