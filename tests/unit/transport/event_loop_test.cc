#include "common/net/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <vector>

#include "tests/unit/transport/sockets.h"

namespace quarry {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

TEST(EventLoopTest, PostedTasksRunInOrderOnTheLoopsThread) {
  std::vector<int> order;
  EventLoop loop("t-order");
  EXPECT_FALSE(loop.InLoop());
  for (int i = 0; i < 1000; ++i) {
    loop.Post([&, i] {
      EXPECT_TRUE(loop.InLoop());
      order.push_back(i);
    });
  }
  loop.Run([] {});
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(EventLoopTest, APostFromATaskRunsAfterThatTask) {
  std::vector<int> order;
  EventLoop loop("t-inner");
  std::promise<void> done;
  loop.Post([&] {
    loop.Post([&] {
      order.push_back(2);
      done.set_value();
    });
    order.push_back(1);
  });
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(EventLoopTest, RunFromTheLoopRunsAtOnce) {
  EventLoop loop("t-run");
  std::vector<int> order;
  loop.Run([&] {
    loop.Run([&] { order.push_back(1); });
    order.push_back(2);
  });
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(EventLoopTest, PostsFromManyThreadsAllRun) {
  EventLoop loop("t-many");
  int runs = 0;  // the loop's
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) loop.Post([&] { ++runs; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  loop.Run([&] { EXPECT_EQ(runs, 20'000); });
}

TEST(EventLoopTest, TimersRunInOrderOfTheirTime) {
  EventLoop loop("t-timers");
  std::vector<int> order;
  std::promise<void> done;
  loop.Run([&] {
    loop.After(30 * kNsPerMs, [&] {
      order.push_back(3);
      done.set_value();
    });
    loop.After(10 * kNsPerMs, [&] { order.push_back(1); });
    loop.After(20 * kNsPerMs, [&] { order.push_back(2); });
    loop.After(-5, [&] { order.push_back(0); });
  });
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(EventLoopTest, ATimerIsNeverEarly) {
  EventLoop loop("t-early");
  std::promise<int64_t> fired;
  const int64_t begin = Clock::Real()->NowNs();
  loop.Run([&] { loop.After(7 * kNsPerMs + 1, [&] { fired.set_value(Clock::Real()->NowNs()); }); });
  EXPECT_GE(fired.get_future().get() - begin, 7 * kNsPerMs + 1);
}

TEST(EventLoopTest, ACancelledTimerDoesNotRun) {
  EventLoop loop("t-cancel");
  std::promise<void> done;
  loop.Run([&] {
    const auto doomed = loop.After(kNsPerMs, [] { ADD_FAILURE() << "cancelled"; });
    const auto doomed_too = loop.After(kNsPerMs, [] { ADD_FAILURE() << "cancelled by a timer of the same round"; });
    loop.After(0, [&loop, doomed_too] { loop.CancelTimer(doomed_too); });
    loop.After(5 * kNsPerMs, [&] { done.set_value(); });
    loop.CancelTimer(doomed);
    loop.CancelTimer(doomed);
    loop.CancelTimer(12'345);
  });
  done.get_future().wait();
}

TEST(EventLoopTest, ATimerMayStartAnother) {
  EventLoop loop("t-chain");
  std::promise<void> done;
  int left = 5;
  std::function<void()> again = [&] {
    if (--left == 0) return done.set_value();
    loop.After(0, again);
  };
  loop.Run([&] { loop.After(0, again); });
  done.get_future().wait();
  EXPECT_EQ(left, 0);
}

TEST(EventLoopTest, DestructionRunsWhatWasPostedAndWhatThatPosts) {
  std::atomic<int> runs{0};
  {
    EventLoop loop("t-end");
    loop.Post([&] {
      for (int i = 0; i < 10; ++i) {
        loop.Post([&] {
          ++runs;
          loop.Post([&] { ++runs; });
        });
      }
    });
    loop.Run([&] { loop.After(3'600'000 * kNsPerMs, [] { ADD_FAILURE(); }); });
  }
  EXPECT_EQ(runs, 20);
}

// Reads what comes, and then does what it is told.
class Reader : public FdHandler {
 public:
  explicit Reader(int fd) : fd_(fd) {}
  void OnEvents(uint32_t) override {
    char byte;
    if (read(fd_, &byte, 1) == 1) ++reads;
    if (then) then();
  }
  int reads = 0;
  std::function<void()> then;

 private:
  const int fd_;
};

TEST(EventLoopTest, AHandlerRemovedInTheSameRoundHearsNothing) {
  EventLoop loop("t-remove");
  for (int round = 0; round < 50; ++round) {
    SocketPair pairs[2] = {LocalPair(), LocalPair()};
    auto readers = std::make_unique<std::array<std::unique_ptr<Reader>, 2>>();
    std::promise<void> done;
    loop.Run([&] {
      for (int i = 0; i < 2; ++i) {
        (*readers)[i] = std::make_unique<Reader>(pairs[i].first.get());
        // Whichever is first removes and destroys the other.
        (*readers)[i]->then = [&, i] {
          loop.Remove(pairs[1 - i].first.get(), (*readers)[1 - i].get());
          (*readers)[1 - i].reset();
          loop.Remove(pairs[i].first.get(), (*readers)[i].get());
          done.set_value();
        };
        loop.Add(pairs[i].first.get(), EPOLLIN, (*readers)[i].get());
      }
      // Both are readable before the loop looks.
      for (SocketPair& pair : pairs) ASSERT_EQ(write(pair.second.get(), "x", 1), 1);
    });
    done.get_future().wait();
    loop.Run([] {});
    EXPECT_EQ(((*readers)[0] != nullptr) + ((*readers)[1] != nullptr), 1);
  }
}

TEST(EventLoopTest, AHandlerAddedAgainHearsAgain) {
  EventLoop loop("t-again");
  SocketPair pair = LocalPair();
  Reader reader(pair.first.get());
  for (int round = 0; round < 3; ++round) {
    std::promise<void> done;
    reader.then = [&] { done.set_value(); };
    loop.Run([&] { loop.Add(pair.first.get(), EPOLLIN, &reader); });
    ASSERT_EQ(write(pair.second.get(), "x", 1), 1);
    done.get_future().wait();
    loop.Run([&] { loop.Remove(pair.first.get(), &reader); });
  }
  EXPECT_EQ(reader.reads, 3);
}

TEST(EventLoopTest, EventsAreAsAskedFor) {
  EventLoop loop("t-modify");
  SocketPair pair = LocalPair();
  struct Recorder : FdHandler {
    void OnEvents(uint32_t events) override { then(events); }
    std::function<void(uint32_t)> then;
  } recorder;
  std::promise<uint32_t> writable, hung_up;
  recorder.then = [&](uint32_t events) {
    loop.Modify(pair.first.get(), EPOLLIN, &recorder);
    writable.set_value(events);
    recorder.then = [&](uint32_t later) {
      loop.Remove(pair.first.get(), &recorder);
      hung_up.set_value(later);
    };
  };
  loop.Run([&] { loop.Add(pair.first.get(), EPOLLOUT, &recorder); });
  EXPECT_EQ(writable.get_future().get(), static_cast<uint32_t>(EPOLLOUT));
  pair.second = UniqueFd();
  EXPECT_TRUE(hung_up.get_future().get() & (EPOLLHUP | EPOLLIN));
}

// Awake between events or asleep, a loop hears of posts and runs its timers.
TEST(EventLoopTest, ALoopThatStaysAwakeHearsOfAllThatASleepingOneDoes) {
  EventLoop loop("t-awake", 50 * kNsPerMs);
  int posted = 0;
  for (int i = 0; i < 1000; ++i) loop.Run([&] { ++posted; });  // short waits: it stays awake now
  EXPECT_EQ(posted, 1000);
  std::promise<void> fired;
  const int64_t begin = Clock::Real()->NowNs();
  loop.Run([&] { loop.After(2 * kNsPerMs, [&] { fired.set_value(); }); });
  fired.get_future().wait();
  EXPECT_GE(Clock::Real()->NowNs() - begin, 2 * kNsPerMs);
}

}  // namespace
}  // namespace quarry
