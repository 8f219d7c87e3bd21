// The three engines on a real file, and which of them a kernel allows.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tests/unit/server/ssd_io_testing.h"

namespace quarry::server {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kPageResult = kTestPage;

class IoEngineTest : public ::testing::TestWithParam<const char*> {
 protected:
  // Skipped, and says so, only where the kernel forbids io_uring: the others work everywhere.
  void SetUp() override {
    if (absl::string_view(GetParam()) != "io_uring") return;
    const auto choice = CreateIoEngine(IoEngineKind::kUring, 1);
    if (!choice.ok()) GTEST_SKIP() << choice.status();
  }

  static std::unique_ptr<IoEngine> Make(uint32_t depth) {
    absl::StatusOr<IoEngineChoice> choice = CreateIoEngine(*ParseIoEngineKind(GetParam()), depth);
    EXPECT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->engine->name(), GetParam());
    EXPECT_EQ(choice->engine->depth(), depth);
    EXPECT_EQ(choice->reason, "");
    return std::move(choice->engine);
  }
  static bool HasKernelQueue() { return absl::string_view(GetParam()) != "threads"; }
};

INSTANTIATE_TEST_SUITE_P(Engines, IoEngineTest, ::testing::Values("io_uring", "libaio", "threads"),
                         [](const auto& engine) { return std::string(engine.param); });

// The calls by which requests reach the kernel's queues.
const std::vector<int> kSubmitCalls = {__NR_io_uring_enter, __NR_io_submit};

TEST_P(IoEngineTest, ManyPartsLandInTheRightPlace) {
  constexpr size_t kPages = 24;
  const UniqueFd file = MakeFile((kPages + 4) * kTestPage);
  const auto engine = Make(8);
  const Pages source(kPages, 1);
  // Parts of 1, 2, .. pages, the last of the memory first.
  std::vector<iovec> parts;
  std::string expected;
  for (size_t left = kPages, size = 1; left > 0; ++size) {
    size = std::min(size, left);
    left -= size;
    parts.push_back(source.Part(left, size));
    expected.append(source.data() + left * kTestPage, size * kTestPage);
  }
  ASSERT_GT(parts.size(), 5u);
  EXPECT_EQ(Result(engine.get(), Write(file.get(), 2 * kTestPage, parts)), kPages * kTestPage);
  EXPECT_EQ(Contents(file, 2 * kTestPage, kPages * kTestPage), expected);
  EXPECT_EQ(Contents(file, 0, 2 * kTestPage), std::string(2 * kTestPage, '\0'));

  const Pages target(kPages);
  EXPECT_EQ(Result(engine.get(), Read(file.get(), 2 * kTestPage, {target.Part(5, kPages - 5), target.Part(0, 5)})),
            kPages * kTestPage);
  EXPECT_EQ(target.Text(), expected.substr((kPages - 5) * kTestPage) + expected.substr(0, (kPages - 5) * kTestPage));
}

TEST_P(IoEngineTest, HundredsAreInFlightFromThreadsThatExitMeanwhile) {
  constexpr size_t kThreads = 4;
  constexpr size_t kEach = 64;
  constexpr size_t kAll = kThreads * kEach;
  constexpr size_t kSize = 3;  // pages
  const UniqueFd file = MakeFile(kAll * kSize * kTestPage);
  const auto engine = Make(kAll);
  const Pages source(kAll * kSize, 2);
  const Pages target(kAll * kSize);
  const auto on_all = [&](auto make, const Pages& pages) {
    Results results(kAll);
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (size_t i = thread; i < kAll; i += kThreads) {
          engine->Submit(make(file.get(), i * kSize * kTestPage, {pages.Part(i * kSize, kSize)}, results.Take(i)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(results.All(), Each(kSize * kTestPage));
  };
  on_all(Write, source);
  EXPECT_EQ(Contents(file, 0, source.bytes()), source.Text());
  on_all(Read, target);
  EXPECT_EQ(target.Text(), source.Text());
}

// io_uring has to go on with reads that find nothing in the page cache, in the thread that
// submitted them, which is gone.
TEST_P(IoEngineTest, RequestsSurviveTheThreadThatSubmittedThem) {
  constexpr size_t kRequests = 200;
  constexpr size_t kSyncs = 10;
  constexpr size_t kApart = 16;  // pages, lest the kernel reads ahead
  const UniqueFd file = MakeFile(kRequests * kApart * kTestPage);
  const auto engine = Make(kRequests + kSyncs);
  const Pages source(kRequests * kApart, 9);
  ASSERT_EQ(Result(engine.get(), Write(file.get(), 0, {source.Part(0, kRequests * kApart)})), source.bytes());
  const UniqueFd buffered = ReopenForReading(file);
  for (int round = 0; round < 10; ++round) {
    ASSERT_EQ(fdatasync(file.get()), 0);
    ASSERT_EQ(posix_fadvise(buffered.get(), 0, 0, POSIX_FADV_RANDOM), 0);
    ASSERT_EQ(posix_fadvise(buffered.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
    const Pages target(kRequests);
    Results reads(kRequests), syncs(kSyncs);
    std::thread([&] {
      for (size_t i = 0; i < kRequests; ++i) {
        if (i < kSyncs) engine->Submit(Sync(file.get(), syncs.Take(i)));
        engine->Submit(Read(buffered.get(), i * kApart * kTestPage, {target.Part(i, 1)}, reads.Take(i)));
      }
    }).join();
    EXPECT_THAT(reads.All(), Each(kPageResult));
    EXPECT_THAT(syncs.All(), Each(0));
    for (size_t i = 0; i < kRequests; ++i) {
      const char* const written = source.data() + i * kApart * kTestPage;
      ASSERT_EQ(std::memcmp(target.data() + i * kTestPage, written, kTestPage), 0) << i;
    }
  }
}

TEST_P(IoEngineTest, ErrorsOfTheKernelComeAsNumbersOnAnotherThread) {
  const UniqueFd file = MakeFile(kTestPage);
  const UniqueFd read_only = ReopenForReading(file);
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const UniqueFd pipe_out(pipe_fds[0]), pipe_in(pipe_fds[1]);
  const auto engine = Make(8);
  const Pages pages(1, 3);
  EXPECT_EQ(Result(engine.get(), Read(-1, 0, {pages.Part(0, 1)})), -EBADF);
  EXPECT_EQ(Result(engine.get(), Write(-1, 0, {pages.Part(0, 1)})), -EBADF);
  EXPECT_EQ(Result(engine.get(), Sync(-1)), -EBADF);
  EXPECT_EQ(Result(engine.get(), Write(read_only.get(), 0, {pages.Part(0, 1)})), -EBADF);
  EXPECT_EQ(Result(engine.get(), Sync(pipe_in.get())), -EINVAL);
  EXPECT_EQ(Result(engine.get(), Read(file.get(), 0, {{nullptr, kTestPage}})), -EFAULT);

  std::promise<std::thread::id> ended_on;
  engine->Submit(Read(-1, 0, {pages.Part(0, 1)}, [&](int64_t) { ended_on.set_value(std::this_thread::get_id()); }));
  EXPECT_NE(ended_on.get_future().get(), std::this_thread::get_id());
  // It goes on.
  EXPECT_EQ(Result(engine.get(), Write(file.get(), 0, {pages.Part(0, 1)})), kPageResult);
  EXPECT_EQ(Contents(file, 0, kTestPage), pages.Text());
}

TEST_P(IoEngineTest, ReadsAcrossAndBeyondTheEndAreShort) {
  const UniqueFd file = MakeFile(2 * kTestPage);
  const auto engine = Make(8);
  const Pages pages(4);
  EXPECT_EQ(Result(engine.get(), Read(file.get(), kTestPage, {pages.Part(0, 2), pages.Part(2, 2)})), kPageResult);
  EXPECT_EQ(Result(engine.get(), Read(file.get(), 2 * kTestPage, {pages.Part(0, 4)})), 0);
}

TEST_P(IoEngineTest, DestructionCompletesWhatIsInFlight) {
  constexpr size_t kRequests = 60;
  const UniqueFd file = MakeFile(kRequests * kTestPage);
  const Pages source(kRequests, 4);
  std::atomic<size_t> written = 0, synced = 0;
  {
    const auto engine = Make(kRequests);
    for (size_t i = 0; i < kRequests; ++i) {
      if (i % 3 == 0) {
        engine->Submit(Sync(file.get(), [&](int64_t result) { synced += result == 0; }));
      } else {
        engine->Submit(Write(file.get(), i * kTestPage, {source.Part(i, 1)},
                             [&](int64_t result) { written += result == kPageResult; }));
      }
    }
  }
  EXPECT_EQ(written.load(), kRequests - kRequests / 3);
  EXPECT_EQ(synced.load(), kRequests / 3);
}

// Each `done` submits the next, the last ones while the engine is being destroyed.
TEST_P(IoEngineTest, DoneMaySubmit) {
  constexpr int kRequests = 60;
  const UniqueFd file = MakeFile(kTestPage);
  const Pages pages(1);
  int ended = 0;  // one after the other
  std::function<void(int64_t)> next;
  {
    const auto engine = Make(1);
    next = [&, raw = engine.get()](int64_t result) {
      EXPECT_EQ(result, ended % 3 == 2 ? 0 : kPageResult);
      if (++ended == kRequests) return;
      raw->Submit(ended % 3 == 0   ? Read(file.get(), 0, {pages.Part(0, 1)}, next)
                  : ended % 3 == 1 ? Write(file.get(), 0, {pages.Part(0, 1)}, next)
                                   : Sync(file.get(), next));
    };
    engine->Submit(Read(file.get(), 0, {pages.Part(0, 1)}, next));
  }
  EXPECT_EQ(ended, kRequests);
}

TEST_P(IoEngineTest, WhatTheKernelHasNoRoomForIsOfferedAgain) {
  constexpr size_t kRequests = 20;
  const UniqueFd file = MakeFile(kRequests * kTestPage);
  const auto engine = Make(kRequests);
  const Pages source(kRequests, 5);
  Results results(kRequests);
  WithoutCalls(kSubmitCalls, EAGAIN, [&] {
    for (size_t i = 0; i < kRequests; ++i) {
      engine->Submit(Write(file.get(), i * kTestPage, {source.Part(i, 1)}, results.Take(i)));
    }
  });
  EXPECT_THAT(results.All(), Each(kPageResult));
  EXPECT_EQ(Contents(file, 0, source.bytes()), source.Text());
}

// More of them than io_uring's ring has entries.
TEST_P(IoEngineTest, WhatTheKernelRefusesFailsAndIsNotCarriedOutLater) {
  constexpr size_t kRequests = 20;
  const UniqueFd file = MakeFile(kRequests * kTestPage);
  const auto engine = Make(4);
  const Pages source(kRequests, 6);
  const int64_t expected = HasKernelQueue() ? -EPERM : kPageResult;
  WithoutCalls(kSubmitCalls, EPERM, [&] {
    for (size_t i = 0; i < kRequests; ++i) {
      EXPECT_EQ(Result(engine.get(), Write(file.get(), i * kTestPage, {source.Part(i, 1)})), expected);
    }
  });
  const Pages target(2);
  EXPECT_EQ(Result(engine.get(), Read(file.get(), 0, {target.Part(0, 1)})), kPageResult);
  EXPECT_EQ(Result(engine.get(), Read(file.get(), kTestPage, {target.Part(1, 1)})), kPageResult);
  EXPECT_EQ(target.Text(),
            HasKernelQueue() ? std::string(2 * kTestPage, '\0') : source.Text().substr(0, 2 * kTestPage));
}

TEST(IoEngineKindTest, IsReadFromItsName) {
  EXPECT_EQ(*ParseIoEngineKind("auto"), IoEngineKind::kAuto);
  EXPECT_EQ(*ParseIoEngineKind("io_uring"), IoEngineKind::kUring);
  EXPECT_EQ(*ParseIoEngineKind("libaio"), IoEngineKind::kAio);
  EXPECT_EQ(*ParseIoEngineKind("threads"), IoEngineKind::kThreads);
  const absl::Status status = ParseIoEngineKind("uring").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "IO engine 'uring' is none of auto, io_uring, libaio and threads");
}

TEST(CreateIoEngineTest, TheDepthIsBounded) {
  for (const uint32_t depth : {0u, kMaxIoDepth + 1}) {
    const absl::Status status = CreateIoEngine(IoEngineKind::kThreads, depth).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not from 1 to 4096"));
  }
  EXPECT_TRUE(CreateIoEngine(IoEngineKind::kAuto, kMaxIoDepth).ok());
}

TEST(CreateIoEngineTest, AutoTakesTheFastestThatWorks) {
  const auto uring = CreateIoEngine(IoEngineKind::kUring, 8);
  const auto choice = CreateIoEngine(IoEngineKind::kAuto, 8);
  ASSERT_TRUE(choice.ok()) << choice.status();
  if (uring.ok()) {
    EXPECT_EQ(choice->engine->name(), "io_uring");
    EXPECT_EQ(choice->reason, "");
  } else {
    EXPECT_THAT(choice->reason, StartsWith("io_uring: "));
  }
}

TEST(CreateIoEngineTest, AutoTakesLibaioWhereIoUringIsForbidden) {
  // Whichever of its calls is.
  for (const int call : {__NR_io_uring_setup, __NR_io_uring_enter, __NR_io_uring_register}) {
    WithoutCalls({call}, EPERM, [] {
      const auto choice = CreateIoEngine(IoEngineKind::kAuto, 8);
      ASSERT_TRUE(choice.ok()) << choice.status();
      EXPECT_EQ(choice->engine->name(), "libaio");
      EXPECT_THAT(choice->reason, StartsWith("io_uring: "));

      const absl::Status status = CreateIoEngine(IoEngineKind::kUring, 8).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(status.message()), StartsWith("io_uring: "));

      const UniqueFd file = MakeFile(kTestPage);
      const Pages pages(1, 7);
      EXPECT_EQ(Result(choice->engine.get(), Write(file.get(), 0, {pages.Part(0, 1)})), kPageResult);
      EXPECT_EQ(Contents(file, 0, kTestPage), pages.Text());
    });
  }
}

TEST(CreateIoEngineTest, AutoTakesThreadsWhereBothAreForbidden) {
  WithoutCalls({__NR_io_uring_setup, __NR_io_setup}, EPERM, [] {
    const auto choice = CreateIoEngine(IoEngineKind::kAuto, 8);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(choice->engine->name(), "threads");
    EXPECT_EQ(choice->reason, "io_uring: Operation not permitted; libaio: Operation not permitted");
    EXPECT_EQ(CreateIoEngine(IoEngineKind::kAio, 8).status().message(), "libaio: Operation not permitted");
    EXPECT_EQ(Result(choice->engine.get(), Sync(-1)), -EBADF);
  });
}

}  // namespace
}  // namespace quarry::server
