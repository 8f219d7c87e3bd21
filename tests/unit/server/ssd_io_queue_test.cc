// IoQueue over an engine that ends requests as the test says, then over real ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <numeric>
#include <thread>

#include "server/ssd/io/io_queue.h"
#include "tests/unit/server/ssd_io_testing.h"

namespace quarry::server {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// FAKE: keeps what it is given; the test ends it. For one thread.
class FakeIoEngine : public IoEngine {
 public:
  explicit FakeIoEngine(uint32_t depth) : depth_(depth) {}
  absl::string_view name() const override { return "fake"; }
  void Submit(IoRequest request) override {
    offsets.push_back(request.offset);
    in_flight.push_back(std::move(request));
  }
  uint32_t depth() const override { return depth_; }

  const IoRequest& oldest() const { return in_flight.front(); }
  void EndOldest(int64_t result) {
    const IoRequest request = std::move(in_flight.front());
    in_flight.pop_front();
    request.done(result);
  }

  std::deque<IoRequest> in_flight;
  std::vector<uint64_t> offsets;  // of all it was given, in order

 private:
  const uint32_t depth_;
};

struct Fixture {
  explicit Fixture(uint32_t depth) : engine(new FakeIoEngine(depth)), queue(std::unique_ptr<IoEngine>(engine)) {}

  std::function<void(int64_t)> Done() {
    return [this](int64_t result) { results.push_back(result); };
  }
  // One page each, at pages of the file that tell them apart.
  void SubmitRead(uint64_t page) { queue.Submit(Read(9, page * kTestPage, {memory.Part(0, 1)}, Done())); }
  void SubmitWrite(uint64_t page) { queue.Submit(Write(9, page * kTestPage, {memory.Part(0, 1)}, Done())); }
  // Ends everything in turn; the file's pages in the order in which they went.
  std::vector<uint64_t> EndAll() {
    while (!engine->in_flight.empty()) {
      engine->EndOldest(engine->oldest().kind == IoRequest::Kind::kSync ? 0 : kTestPage);
    }
    std::vector<uint64_t> pages;
    for (const uint64_t offset : engine->offsets) pages.push_back(offset / kTestPage);
    return pages;
  }

  const Pages memory{8};
  std::vector<int64_t> results;
  FakeIoEngine* engine;
  IoQueue queue;
};

std::vector<std::pair<char*, size_t>> Parts(const IoRequest& request) {
  std::vector<std::pair<char*, size_t>> parts;
  for (const iovec& part : request.parts) parts.emplace_back(static_cast<char*>(part.iov_base), part.iov_len);
  return parts;
}

TEST(IoQueueTest, ShortTransfersAreGoneOnWith) {
  for (const auto make : {Read, Write}) {
    Fixture f(4);
    char* const memory = f.memory.data();
    f.queue.Submit(make(9, 40 * kTestPage, {f.memory.Part(6, 2), f.memory.Part(0, 4)}, f.Done()));
    f.engine->EndOldest(1 * kTestPage);
    ASSERT_EQ(f.engine->in_flight.size(), 1u);
    EXPECT_EQ(f.engine->oldest().fd, 9);
    EXPECT_EQ(f.engine->oldest().kind, make(9, 0, {}, {}).kind);
    EXPECT_EQ(f.engine->oldest().offset, 41 * kTestPage);
    EXPECT_THAT(Parts(f.engine->oldest()),
                ElementsAre(std::pair(memory + 7 * kTestPage, kTestPage), std::pair(memory, 4 * kTestPage)));
    f.engine->EndOldest(3 * kTestPage);
    EXPECT_EQ(f.engine->oldest().offset, 44 * kTestPage);
    EXPECT_THAT(Parts(f.engine->oldest()), ElementsAre(std::pair(memory + 2 * kTestPage, 2 * kTestPage)));
    EXPECT_THAT(f.results, ElementsAre());
    f.engine->EndOldest(2 * kTestPage);
    EXPECT_THAT(f.results, ElementsAre(6 * kTestPage));
    EXPECT_TRUE(f.engine->in_flight.empty());
  }
}

TEST(IoQueueTest, APageMovedInPartIsMovedAgainFromItsBegin) {
  Fixture f(4);
  f.queue.Submit(Write(9, 10 * kTestPage, {f.memory.Part(0, 2), f.memory.Part(4, 2)}, f.Done()));
  f.engine->EndOldest(2 * kTestPage + 512);
  EXPECT_EQ(f.engine->oldest().offset, 12 * kTestPage);
  EXPECT_THAT(Parts(f.engine->oldest()), ElementsAre(std::pair(f.memory.data() + 4 * kTestPage, 2 * kTestPage)));
  f.engine->EndOldest(2 * kTestPage);
  EXPECT_THAT(f.results, ElementsAre(4 * kTestPage));
}

TEST(IoQueueTest, ARequestThatDoesNotBeginAtAPageIsGoneOnWithToo) {
  Fixture f(4);
  f.queue.Submit(Read(9, 100, {{f.memory.data(), 5000}}, f.Done()));
  f.engine->EndOldest(10);  // the page begins before the request
  EXPECT_EQ(f.engine->oldest().offset, 100u);
  EXPECT_THAT(Parts(f.engine->oldest()), ElementsAre(std::pair(f.memory.data(), 5000u)));
  f.engine->EndOldest(4500);
  EXPECT_EQ(f.engine->oldest().offset, 4096u);
  EXPECT_THAT(Parts(f.engine->oldest()), ElementsAre(std::pair(f.memory.data() + 3996, 1004u)));
  f.engine->EndOldest(1004);
  EXPECT_THAT(f.results, ElementsAre(5000));
}

TEST(IoQueueTest, ATransferThatDoesNotGoOnIsAnError) {
  Fixture f(4);
  f.queue.Submit(Read(9, 0, {f.memory.Part(0, 4)}, f.Done()));
  f.engine->EndOldest(0);
  EXPECT_THAT(f.results, ElementsAre(-EIO));
  f.queue.Submit(Write(9, 0, {f.memory.Part(0, 4)}, f.Done()));
  f.engine->EndOldest(kTestPage);
  f.engine->EndOldest(0);
  EXPECT_THAT(f.results, ElementsAre(-EIO, -EIO));
  // A file that ends within a page gives the same part of it each time.
  f.queue.Submit(Read(9, 0, {f.memory.Part(0, 4)}, f.Done()));
  f.engine->EndOldest(2 * kTestPage + 512);
  f.engine->EndOldest(512);
  EXPECT_THAT(f.results, ElementsAre(-EIO, -EIO, -EIO));
  EXPECT_TRUE(f.engine->in_flight.empty());
}

TEST(IoQueueTest, ErrorsPassThrough) {
  Fixture f(4);
  f.queue.Submit(Write(9, 0, {f.memory.Part(0, 4)}, f.Done()));
  f.engine->EndOldest(-ENOSPC);
  f.queue.Submit(Read(9, 0, {f.memory.Part(0, 4)}, f.Done()));
  f.engine->EndOldest(kTestPage);
  f.engine->EndOldest(-EBADF);
  f.queue.Submit(Sync(9, f.Done()));
  f.engine->EndOldest(-EROFS);
  EXPECT_THAT(f.results, ElementsAre(-ENOSPC, -EBADF, -EROFS));
  EXPECT_TRUE(f.engine->in_flight.empty());
}

TEST(IoQueueTest, AnEmptyTransferAndASyncEndWithNothing) {
  Fixture f(4);
  f.queue.Submit(Read(9, 0, {}, f.Done()));
  f.engine->EndOldest(0);
  f.queue.Submit(Sync(9, f.Done()));
  EXPECT_EQ(f.engine->oldest().kind, IoRequest::Kind::kSync);
  f.engine->EndOldest(0);
  EXPECT_THAT(f.results, ElementsAre(0, 0));
}

TEST(IoQueueTest, NoMoreAreInFlightThanTheEngineTakes) {
  Fixture f(4);
  for (uint64_t i = 0; i < 10; ++i) i % 2 == 0 ? f.SubmitRead(i) : f.SubmitWrite(i);
  EXPECT_EQ(f.engine->in_flight.size(), 4u);
  EXPECT_EQ(f.queue.stats().in_flight, 4u);
  EXPECT_EQ(f.queue.stats().queued, 6u);
  f.engine->EndOldest(kTestPage);
  f.engine->EndOldest(-EIO);
  EXPECT_EQ(f.engine->in_flight.size(), 4u);
  EXPECT_EQ(f.queue.stats().queued, 4u);
  f.EndAll();
  EXPECT_EQ(f.results.size(), 10u);
  EXPECT_EQ(f.queue.stats().in_flight, 0u);
}

std::vector<uint64_t> Range(uint64_t begin, uint64_t end) {
  std::vector<uint64_t> range(end - begin);
  std::iota(range.begin(), range.end(), begin);
  return range;
}

TEST(IoQueueTest, ReadsGoFirstButAWriteWaitsForSixteenAtMost) {
  Fixture f(1);
  f.SubmitRead(0);  // is in flight before anything waits
  f.SubmitWrite(1000);
  f.SubmitWrite(1001);
  for (uint64_t i = 1; i <= 40; ++i) f.SubmitRead(i);
  std::vector<uint64_t> expected = Range(0, 17);
  expected.push_back(1000);
  for (const uint64_t page : Range(17, 33)) expected.push_back(page);
  expected.push_back(1001);
  for (const uint64_t page : Range(33, 41)) expected.push_back(page);
  EXPECT_EQ(f.EndAll(), expected);
}

TEST(IoQueueTest, ReadsBeforeAWriteWasThereDoNotCountAgainstIt) {
  Fixture f(1);
  for (uint64_t i = 0; i < 30; ++i) f.SubmitRead(i);
  for (int i = 0; i < 20; ++i) f.engine->EndOldest(kTestPage);
  f.SubmitWrite(1000);
  std::vector<uint64_t> expected = Range(0, 30);
  expected.push_back(1000);
  EXPECT_EQ(f.EndAll(), expected);
}

TEST(IoQueueTest, WritesAndSyncsGoInTheirOrder) {
  Fixture f(1);
  f.SubmitWrite(1);
  f.SubmitWrite(2);
  f.queue.Submit(Sync(9, f.Done()));
  f.SubmitWrite(3);
  EXPECT_THAT(f.EndAll(), ElementsAre(1, 2, 0, 3));
  EXPECT_THAT(f.results, ElementsAre(kTestPage, kTestPage, 0, kTestPage));
}

TEST(IoQueueTest, CountsByDirection) {
  Fixture f(4);
  EXPECT_EQ(f.queue.engine_name(), "fake");
  f.queue.Submit(Read(9, 0, {f.memory.Part(0, 4)}, f.Done()));
  f.engine->EndOldest(kTestPage);
  f.engine->EndOldest(3 * kTestPage);
  f.SubmitRead(0);
  f.engine->EndOldest(-EIO);
  f.SubmitWrite(0);
  f.queue.Submit(Sync(9, f.Done()));
  f.EndAll();
  const IoQueueStats stats = f.queue.stats();
  EXPECT_EQ(stats.reads.requests, 2u);
  EXPECT_EQ(stats.reads.bytes, 4 * kTestPage);
  EXPECT_EQ(stats.reads.errors, 1u);
  EXPECT_EQ(stats.writes.requests, 1u);
  EXPECT_EQ(stats.writes.bytes, kTestPage);
  EXPECT_EQ(stats.writes.errors, 0u);
  EXPECT_EQ(stats.syncs.requests, 1u);

  const auto count = [&](IoRequest::Kind kind, auto histogram) {
    const std::vector<uint64_t> counts = (f.queue.histograms(kind).*histogram).snapshot().counts;
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  };
  EXPECT_EQ(f.queue.histograms(IoRequest::Kind::kRead).bytes.snapshot().counts[2], 1u);  // 16 KiB
  EXPECT_EQ(count(IoRequest::Kind::kRead, &IoHistograms::bytes), 1u);
  EXPECT_EQ(count(IoRequest::Kind::kRead, &IoHistograms::latency), 1u);
  EXPECT_EQ(count(IoRequest::Kind::kWrite, &IoHistograms::bytes), 1u);
  EXPECT_EQ(count(IoRequest::Kind::kWrite, &IoHistograms::latency), 1u);
  EXPECT_EQ(count(IoRequest::Kind::kSync, &IoHistograms::bytes), 0u);
  EXPECT_EQ(count(IoRequest::Kind::kSync, &IoHistograms::latency), 1u);
}

TEST(IoQueueTest, DrainWaitsForTheLast) {
  Fixture f(1);
  f.queue.Drain();  // nothing to wait for
  f.SubmitRead(0);
  f.SubmitWrite(1);
  std::atomic<bool> drained = false;
  std::thread drain([&] {
    f.queue.Drain();
    drained = true;
  });
  f.engine->EndOldest(kTestPage);
  EXPECT_FALSE(drained.load());
  f.engine->EndOldest(-EIO);
  drain.join();
  EXPECT_EQ(f.results.size(), 2u);
}

TEST(IoQueueTest, DoneMaySubmit) {
  Fixture f(1);
  f.queue.Submit(Read(9, 0, {f.memory.Part(0, 1)}, [&](int64_t) { f.SubmitWrite(7); }));
  EXPECT_THAT(f.EndAll(), ElementsAre(0, 7));
  EXPECT_THAT(f.results, ElementsAre(kTestPage));
}

class IoQueueOnDiskTest : public ::testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<IoEngine> Make(uint32_t depth) {
    absl::StatusOr<IoEngineChoice> choice = CreateIoEngine(*ParseIoEngineKind(GetParam()), depth);
    EXPECT_TRUE(choice.ok()) << choice.status();
    return std::move(choice->engine);
  }
};

// "auto" is io_uring where that is allowed.
INSTANTIATE_TEST_SUITE_P(Engines, IoQueueOnDiskTest, ::testing::Values("auto", "libaio", "threads"),
                         [](const auto& engine) { return std::string(engine.param); });

TEST_P(IoQueueOnDiskTest, ManyThreadsBytesComeBackAndDestructionLosesNothing) {
  constexpr size_t kThreads = 4;
  constexpr size_t kAll = kThreads * 100;
  const UniqueFd file = MakeFile(kAll * kTestPage);
  const Pages source(kAll, 8);
  const Pages target(kAll);
  std::atomic<size_t> ended = 0;
  {
    IoQueue queue(Make(8));
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (size_t i = thread; i < kAll; i += kThreads) {
          const auto read = [&, i](int64_t written) {
            EXPECT_EQ(written, kTestPage);
            queue.Submit(Read(file.get(), i * kTestPage, {target.Part(i, 1)}, [&](int64_t result) {
              EXPECT_EQ(result, kTestPage);
              ++ended;
            }));
          };
          queue.Submit(Write(file.get(), i * kTestPage, {source.Part(i, 1)}, read));
          if (i % 50 == 0) queue.Submit(Sync(file.get(), [](int64_t result) { EXPECT_EQ(result, 0); }));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(ended.load(), kAll);
  EXPECT_EQ(target.Text(), source.Text());
}

TEST_P(IoQueueOnDiskTest, AFileThatEndsEarlyIsAnError) {
  const UniqueFd file = MakeFile(2 * kTestPage + 512);
  const Pages target(4);
  Results results(2);
  IoQueue queue(Make(8));
  queue.Submit(Read(file.get(), 0, {target.Part(0, 4)}, results.Take(0)));
  queue.Submit(Read(file.get(), 4 * kTestPage, {target.Part(0, 4)}, results.Take(1)));
  EXPECT_THAT(results.All(), Each(-EIO));
}

}  // namespace
}  // namespace quarry::server
