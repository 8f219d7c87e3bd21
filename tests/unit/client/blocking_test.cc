// The blocking calls of one message and one reply, which read their reply themselves when
// nothing else is under way.
#include <future>

#include "tests/unit/client/client_fixture.h"

namespace quarry {
namespace {

using testing::HasSubstr;

class BlockingTest : public ClientFixture {
 protected:
  BlockingTest() { Connect(); }

  std::future<absl::StatusOr<MatchResult>> StartMatch(uint32_t deadline_ms = kLongMs) {
    return std::async(std::launch::async, [this, deadline_ms] {
      return client_->Match(ns_, {&chain_, 1}, {.deadline_ms = deadline_ms});
    });
  }
  OperationId BeginMatch() { return *client_->MatchAsync(ns_, {&chain_, 1}, {.deadline_ms = kLongMs}, &queue_, 0); }
  static wire::MatchReply Reply(uint64_t usable_tokens) {
    wire::MatchReply reply;
    reply.usable_tokens = usable_tokens;
    reply.chains = {{absl::string_view("\1\1\0", 3), 0, 2}};
    reply.lease = "0123456789abcdef";
    reply.lease_limit = LeaseLimit::kBytes;
    return reply;
  }
  void ExpectMatchWorks() {
    auto match = StartMatch();
    session_.control.Send({session_.control.Read().request(), Reply(48)});
    EXPECT_EQ(match.get()->usable_tokens, 48u);
    ExpectNothingPending();
  }

  const Chain chain_ = TestChain(3);
};

TEST_F(BlockingTest, AMatchReturnsWhatTheServerSays) {
  auto match = StartMatch();
  const fakes::Received request = session_.control.Read();
  session_.control.Send({request.request(), Reply(32)});
  const auto result = match.get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->usable_tokens, 32u);
  EXPECT_EQ(result->chains[0].end_usable, 2u);
  EXPECT_EQ(result->lease_limit, LeaseLimit::kBytes);
  EXPECT_TRUE(result->lease);
  ExpectNothingPending();
  ExpectMatchWorks();
}

TEST_F(BlockingTest, AnErrorEndsTheCallAndNothingElse) {
  auto match = StartMatch();
  wire::Error error;
  error.code = static_cast<uint32_t>(absl::StatusCode::kNotFound);
  error.message = "no such handle";
  session_.control.Send({session_.control.Read().request(), error});
  const absl::Status status = match.get().status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no such handle"));
  ExpectMatchWorks();
}

TEST_F(BlockingTest, RepliesToOthersThatComeFirstReachThem) {
  auto match = StartMatch();
  const fakes::Received blocking = session_.control.Read();
  const OperationId other = BeginMatch();
  EXPECT_EQ(session_.control.Read().request(), other);
  session_.control.Send({other, Reply(16)});
  session_.control.Send({blocking.request(), Reply(32)});
  EXPECT_EQ(Next().match->usable_tokens, 16u);
  EXPECT_EQ(match.get()->usable_tokens, 32u);
  ExpectMatchWorks();
}

TEST_F(BlockingTest, ACallBesideOthersThatAreUnderWayIsAnswered) {
  const OperationId other = BeginMatch();
  session_.control.Read();
  auto match = StartMatch();
  session_.control.Send({session_.control.Read().request(), Reply(32)});
  EXPECT_EQ(match.get()->usable_tokens, 32u);
  session_.control.Send({other, Reply(16)});
  EXPECT_EQ(Next().operation, other);
  ExpectNothingPending();
}

TEST_F(BlockingTest, ASilentServerEndsACallAtItsDeadlineAndTheLateLeaseIsReleased) {
  auto match = StartMatch(30);
  const fakes::Received request = session_.control.Read();
  EXPECT_TRUE(absl::IsDeadlineExceeded(match.get().status()));
  const fakes::Received cancel = session_.control.Read();
  EXPECT_TRUE(cancel.Is<wire::Cancel>());
  EXPECT_EQ(cancel.request(), request.request());
  session_.control.Send({request.request(), Reply(32)});
  EXPECT_TRUE(session_.control.Read().Is<wire::ReleaseLease>());
  ExpectMatchWorks();
}

TEST_F(BlockingTest, ACallEndsWithItsConnection) {
  auto match = StartMatch();
  session_.control.Read();
  session_.control.Close();
  EXPECT_TRUE(absl::IsUnavailable(match.get().status()));
  ExpectNothingPending();
}

TEST_F(BlockingTest, ACallEndsWhenADataStreamBreaks) {
  auto match = StartMatch();
  session_.control.Read();
  session_.channel->Close();
  EXPECT_TRUE(absl::IsUnavailable(match.get().status()));
  ExpectNothingPending();
}

TEST_F(BlockingTest, AReplyOfAnotherKindBreaksTheConnection) {
  auto match = StartMatch();
  session_.control.Send({session_.control.Read().request(), wire::Ack{}});
  const absl::Status status = match.get().status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("protocol"));
  fakes::Received none;
  EXPECT_FALSE(session_.control.TryRead(&none));
}

TEST_F(BlockingTest, MalformedBytesBreakTheConnection) {
  auto match = StartMatch();
  session_.control.Read();
  session_.control.SendRaw(std::string("\2\0\0\0\xff\xff", 6));
  const absl::Status status = match.get().status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("malformed"));
}

TEST_F(BlockingTest, CallsOfManyThreadsAreAllAnswered) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 500;
  std::future<void> server = std::async(std::launch::async, [this] {
    for (int i = 0; i < kThreads * kCalls; ++i) {
      const fakes::Received request = session_.control.Read();
      session_.control.Send({request.request(), Reply(request.request())});
    }
  });
  std::vector<std::future<int>> callers;
  for (int t = 0; t < kThreads; ++t) {
    callers.push_back(std::async(std::launch::async, [this] {
      int answered = 0;
      for (int i = 0; i < kCalls; ++i) {
        const auto result = client_->Match(ns_, {&chain_, 1}, {.deadline_ms = kLongMs});
        answered += result.ok() ? 1 : 0;
      }
      return answered;
    }));
  }
  for (auto& caller : callers) EXPECT_EQ(caller.get(), kCalls);
  server.get();
  ExpectNothingPending();
}

}  // namespace
}  // namespace quarry
