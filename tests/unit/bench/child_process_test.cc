#include "tools/bench/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tools/bench/server_process.h"

namespace quarry::bench {
namespace {

constexpr int kTimeoutMs = 20'000;

TEST(ChildProcess, TalksLineByLine) {
  auto child = ChildProcess::Start({"cat"});
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE((*child)->WriteLine("one").ok());
  ASSERT_TRUE((*child)->WriteLine("two").ok());
  EXPECT_EQ(*(*child)->ReadLine(kTimeoutMs), "one");
  EXPECT_EQ(*(*child)->ReadLine(kTimeoutMs), "two");
}

TEST(ChildProcess, GivesAllOutputUntilItsEnd) {
  auto child = ChildProcess::Start({"printf", "a\\nb"});
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(*(*child)->ReadAll(kTimeoutMs), "a\nb");
  EXPECT_TRUE(absl::IsUnavailable((*child)->ReadLine(kTimeoutMs).status()));
}

TEST(ChildProcess, SaysWhichProgramCannotBeRun) {
  const auto child = ChildProcess::Start({"/no/such/program"});
  ASSERT_TRUE(absl::IsUnavailable(child.status()));
  EXPECT_THAT(std::string(child.status().message()), testing::HasSubstr("/no/such/program"));
}

TEST(ChildProcess, ReadingEndsByItsDeadline) {
  auto child = ChildProcess::Start({"cat"});
  ASSERT_TRUE(child.ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded((*child)->ReadLine(10).status()));
}

TEST(ChildProcess, StopTellsHowItEnded) {
  auto good = ChildProcess::Start({"bash", "-c", "trap 'exit 0' TERM; echo up; while :; do read -t 1 line; done"});
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*(*good)->ReadLine(kTimeoutMs), "up");
  EXPECT_TRUE((*good)->Stop(kTimeoutMs).ok());

  auto bad = ChildProcess::Start({"bash", "-c", "trap 'exit 3' TERM; echo up; while :; do read -t 1 line; done"});
  ASSERT_TRUE(bad.ok());
  EXPECT_EQ(*(*bad)->ReadLine(kTimeoutMs), "up");
  EXPECT_THAT(std::string((*bad)->Stop(kTimeoutMs).message()), testing::HasSubstr("exit status 3"));
}

TEST(ChildProcess, FinishEndsItsInput) {
  auto child = ChildProcess::Start({"cat"});
  ASSERT_TRUE(child.ok());
  EXPECT_TRUE((*child)->Finish(kTimeoutMs).ok());
}

TEST(ChildProcess, IsKilledWhenItDoesNotStop) {
  auto child = ChildProcess::Start({"bash", "-c", "trap '' TERM; echo up; while :; do read -t 1 line; done"});
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(*(*child)->ReadLine(kTimeoutMs), "up");
  const pid_t pid = (*child)->pid();
  EXPECT_TRUE(absl::IsDeadlineExceeded((*child)->Stop(50)));
  EXPECT_NE(kill(pid, 0), 0);
}

TEST(ReadyField, FindsAddressesInTheReadyLine) {
  const std::string line = "quarryd ready grpc=127.0.0.1:7420 transfer=[::1]:7421 metrics=127.0.0.1:9420 socket=";
  EXPECT_EQ(ReadyField(line, "grpc"), "127.0.0.1:7420");
  EXPECT_EQ(ReadyField(line, "transfer"), "[::1]:7421");
  EXPECT_EQ(ReadyField(line, "socket"), "");
  EXPECT_EQ(ReadyField(line, "shm"), "");
}

TEST(ServerUnderTest, ReadsTheCpuTimeOfAProcess) {
  auto server = ServerUnderTest::Start({.server = "127.0.0.1:1", .server_pid = getpid()});
  ASSERT_TRUE(server.ok());
  volatile uint64_t sink = 0;
  double seconds = 0;
  while (seconds == 0) {
    for (int i = 0; i < 1'000'000; ++i) sink = sink + 1;
    seconds = (*server)->CpuSeconds().value();
  }
  EXPECT_LT(seconds, 3600);
  EXPECT_TRUE((*server)->Stop().ok());
}

TEST(ServerUnderTest, WithoutAProcessThereIsNoCpuTime) {
  auto server = ServerUnderTest::Start({.server = "127.0.0.1:1"});
  ASSERT_TRUE(server.ok());
  EXPECT_FALSE((*server)->CpuSeconds().has_value());
}

TEST(ServerUnderTest, AServerThatEndsBeforeItIsReadyIsAnError) {
  EXPECT_FALSE(ServerUnderTest::Start({.quarryd = "true"}).ok());
}

}  // namespace
}  // namespace quarry::bench
