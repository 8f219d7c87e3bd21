// Who reads the control stream: the loop, or a caller that waits for its reply.
#include "client/control_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <string>
#include <vector>

#include "tests/unit/transport/sockets.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string Framed(absl::string_view message) {
  std::string framed(4, '\0');
  framed[0] = static_cast<char>(message.size());
  framed.append(message.data(), message.size());
  return framed;
}

class ControlStreamTest : public testing::Test, private ControlStream::Listener {
 public:
  ~ControlStreamTest() override {
    loop_.Run([this] { stream_->Stop(); });
  }

 protected:
  ControlStreamTest() {
    loop_.Run([this] { stream_->Start(); });
  }

  void Say(absl::string_view bytes) {
    ASSERT_EQ(send(sockets_.second.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), ssize_t(bytes.size()));
  }
  // What the loop has read, when it is so much.
  std::vector<std::string> Heard(size_t messages) {
    std::unique_lock lock(mutex_);
    const auto enough = [&] { return heard_.size() >= messages; };
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), enough));
    return heard_;
  }
  // Once the loop has done all that it had to do.
  std::vector<std::string> HeardByNow() {
    loop_.Run([] {});
    loop_.Run([] {});
    return Heard(0);
  }
  bool WaitBroken() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return broken_ == 1; });
  }

  SocketPair sockets_ = TcpPair();
  EventLoop loop_{"test"};
  const std::shared_ptr<ControlStream> stream_ =
      std::make_shared<ControlStream>(std::move(sockets_.first), &loop_, static_cast<ControlStream::Listener*>(this));

 private:
  void OnControlMessage(absl::string_view message) override {
    std::lock_guard lock(mutex_);
    heard_.emplace_back(message);
    changed_.notify_all();
  }
  void OnControlBroken(absl::Status) override {
    std::lock_guard lock(mutex_);
    ++broken_;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> heard_;  // guarded by mutex_
  int broken_ = 0;                  // guarded by mutex_
};

TEST_F(ControlStreamTest, TheLoopReadsExceptWhileACallerHasTheTurn) {
  Say(Framed("before"));
  EXPECT_THAT(Heard(1), ElementsAre("before"));
  HeardByNow();  // the loop no longer reads
  {
    ControlStream::Turn turn = stream_->TakeTurn();
    ASSERT_TRUE(turn);
    Say(Framed("mine"));
    EXPECT_EQ(turn.Next(SoonNs()), "mine");
    Say(Framed("mine too"));
    EXPECT_EQ(turn.Next(SoonNs()), "mine too");
    EXPECT_THAT(HeardByNow(), ElementsAre("before"));
  }
  Say(Framed("after"));
  EXPECT_THAT(Heard(2), ElementsAre("before", "after"));
}

TEST_F(ControlStreamTest, WhatACallerLeavesGoesToTheLoopInOrder) {
  {
    ControlStream::Turn turn = stream_->TakeTurn();
    Say(Framed("mine") + Framed("theirs") + Framed("theirs again") + Framed("the rest").substr(0, 6));
    EXPECT_EQ(turn.Next(SoonNs()), "mine");
    EXPECT_EQ(turn.Next(SoonNs()), "theirs");
    turn.PutBack();
  }
  EXPECT_THAT(Heard(2), ElementsAre("theirs", "theirs again"));
  Say(Framed("the rest").substr(6));
  EXPECT_THAT(Heard(3), ElementsAre("theirs", "theirs again", "the rest"));
}

TEST_F(ControlStreamTest, WhatCameInATurnAndWasNotReadGoesToTheLoop) {
  {
    const ControlStream::Turn turn = stream_->TakeTurn();
    Say(Framed("unread"));
  }
  EXPECT_THAT(Heard(1), ElementsAre("unread"));
}

TEST_F(ControlStreamTest, OnlyOneHasTheTurn) {
  const ControlStream::Turn turn = stream_->TakeTurn();
  EXPECT_TRUE(turn);
  EXPECT_FALSE(std::async(std::launch::async, [&] { return bool(stream_->TakeTurn()); }).get());
}

TEST_F(ControlStreamTest, WaitingEndsAtTheDeadlineAndTheTurnIsGivenBack) {
  {
    ControlStream::Turn turn = stream_->TakeTurn();
    EXPECT_EQ(turn.Next(Clock::Real()->NowNs() + 1'000'000), std::nullopt);
    EXPECT_EQ(turn.Next(0), std::nullopt);
  }
  Say(Framed("late"));
  EXPECT_THAT(Heard(1), ElementsAre("late"));
}

TEST_F(ControlStreamTest, TheLoopLearnsThatTheStreamEndedInATurn) {
  {
    ControlStream::Turn turn = stream_->TakeTurn();
    sockets_.second = UniqueFd();
    EXPECT_EQ(turn.Next(SoonNs()), std::nullopt);
  }
  EXPECT_TRUE(WaitBroken());
  EXPECT_THAT(HeardByNow(), IsEmpty());
}

TEST_F(ControlStreamTest, AnImpossibleLengthReadInATurnBreaksTheStream) {
  {
    ControlStream::Turn turn = stream_->TakeTurn();
    Say(std::string(4, '\0'));
    EXPECT_EQ(turn.Next(SoonNs()), std::nullopt);
  }
  EXPECT_TRUE(WaitBroken());
}

TEST_F(ControlStreamTest, StoppingEndsTheWaitOfWhoHasTheTurn) {
  std::promise<void> has_turn;
  auto waits = std::async(std::launch::async, [&] {
    ControlStream::Turn turn = stream_->TakeTurn();
    has_turn.set_value();
    return turn.Next(SoonNs());
  });
  has_turn.get_future().wait();
  loop_.Run([this] { stream_->Stop(); });
  EXPECT_EQ(waits.get(), std::nullopt);
}

TEST_F(ControlStreamTest, UnsentBytesGoOutDuringATurn) {
  const std::string large(32 << 20, 'x');  // more than the sockets hold
  const ControlStream::Turn turn = stream_->TakeTurn();
  stream_->Send(large);
  EXPECT_GT(stream_->outgoing_bytes(), 0u);
  std::string got(large.size(), '\0');
  size_t bytes = 0;
  while (bytes < got.size()) {
    pollfd entry{sockets_.second.get(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 30'000), 1);
    const ssize_t n = recv(sockets_.second.get(), got.data() + bytes, got.size() - bytes, 0);
    ASSERT_GT(n, 0);
    bytes += static_cast<size_t>(n);
  }
  EXPECT_TRUE(got == large);
}

}  // namespace
}  // namespace quarry
