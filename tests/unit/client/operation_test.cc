// Operations without bytes: exactly one end each, whatever happens.
#include <memory>
#include <thread>

#include "tests/unit/client/client_fixture.h"

namespace quarry {
namespace {

using testing::HasSubstr;

class OperationTest : public ClientFixture {
 protected:
  OperationId BeginMatch(uint32_t deadline_ms = kLongMs) {
    const Chain chain = TestChain(3);
    const MatchOptions options{.deadline_ms = deadline_ms};
    auto id = client_->MatchAsync(ns_, {&chain, 1}, options, &queue_, 5);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  static wire::MatchReply Reply() {
    wire::MatchReply reply;
    reply.usable_tokens = 32;
    reply.chains = {{absl::string_view("\1\1\0", 3), 0, 2}};
    reply.first_miss = MissCause::kEvicted;
    reply.first_miss_block = 2;
    reply.lease = "0123456789abcdef";
    reply.lease_ms = 1'000;
    return reply;
  }
  // What a round trip needs when nothing else is on its way.
  void ExpectNextMessageIsMatch() {
    const OperationId id = BeginMatch();
    const fakes::Received match = session_.control.Read();
    EXPECT_EQ(match.request(), id);
    session_.control.Send({id, Reply()});
    EXPECT_TRUE(Next().status.ok());
  }
};

TEST_F(OperationTest, AMatchReportsWhatTheServerSays) {
  Connect();
  const OperationId id = BeginMatch();
  const fakes::Received request = session_.control.Read();
  EXPECT_EQ(request.request(), id);
  const auto& match = request.As<wire::Match>();
  EXPECT_EQ(match.handle, kTestHandle);
  EXPECT_EQ(match.lease_ms, 5'000u);
  ASSERT_EQ(match.chains.size(), 1u);
  EXPECT_EQ(match.chains[0].hashes, TestHash(0) + TestHash(1) + TestHash(2));
  session_.control.Send({id, Reply()});

  const Completion done = Next();
  EXPECT_EQ(done.kind, Completion::Kind::kDone);
  EXPECT_EQ(done.operation, id);
  EXPECT_EQ(done.user_data, 5u);
  ASSERT_TRUE(done.status.ok()) << done.status;
  ASSERT_NE(done.match, nullptr);
  EXPECT_EQ(done.match->usable_tokens, 32u);
  EXPECT_THAT(done.match->chains[0].states,
              testing::ElementsAre(BlockState::kDram, BlockState::kDram, BlockState::kAbsent));
  EXPECT_EQ(done.match->chains[0].end_usable, 2u);
  EXPECT_EQ(done.match->first_miss, MissCause::kEvicted);
  EXPECT_EQ(done.match->lease.granted_ms(), 1'000u);
  ExpectNothingPending();
}

TEST_F(OperationTest, ASilentServerEndsAnOperationOnceAtItsDeadline) {
  Connect();
  const OperationId id = BeginMatch(30);
  const Completion done = Next();
  EXPECT_EQ(done.kind, Completion::Kind::kDone);
  EXPECT_EQ(done.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(done.held);
  EXPECT_TRUE(session_.control.Read().Is<wire::Match>());
  const fakes::Received cancel = session_.control.Read();
  EXPECT_TRUE(cancel.Is<wire::Cancel>());
  EXPECT_EQ(cancel.request(), id);
  ExpectNothingPending();
}

TEST_F(OperationTest, DeadlinesEndOperationsInTheirOrder) {
  Connect();
  const OperationId late = BeginMatch(60);
  const OperationId early = BeginMatch(20);
  EXPECT_EQ(Next().operation, early);
  EXPECT_EQ(Next().operation, late);
  ExpectNothingPending();
}

TEST_F(OperationTest, AReplyThatComesTooLateIsIgnoredAndItsLeaseReleased) {
  Connect();
  const OperationId id = BeginMatch();
  session_.control.Read();
  client_->Cancel(id);
  EXPECT_EQ(Next().status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(session_.control.Read().Is<wire::Cancel>());
  session_.control.Send({id, Reply()});
  const fakes::Received release = session_.control.Read();
  ASSERT_TRUE(release.Is<wire::ReleaseLease>());
  EXPECT_EQ(release.As<wire::ReleaseLease>().lease, "0123456789abcdef");
  EXPECT_GT(release.request(), id);
  ExpectNothingPending();
}

TEST_F(OperationTest, CancelAfterTheEndDoesNothing) {
  Connect();
  const OperationId id = BeginMatch();
  session_.control.Read();
  session_.control.Send({id, Reply()});
  EXPECT_TRUE(Next().status.ok());
  client_->Cancel(id);
  client_->Cancel(id + 1'000);
  ExpectNextMessageIsMatch();
  ExpectNothingPending();
}

TEST_F(OperationTest, AThousandCancelsRacingTheirRepliesEndOnceEach) {
  Connect();
  constexpr int kOperations = 1'000;
  std::thread server([&] {
    int matches = 0;
    fakes::Received received;
    while (matches < kOperations && session_.control.TryRead(&received)) {
      if (!received.Is<wire::Match>()) continue;
      ++matches;
      wire::MatchReply reply = Reply();
      reply.lease = "";
      session_.control.Send({received.request(), reply});
    }
  });
  for (int i = 0; i < kOperations; ++i) {
    const OperationId id = BeginMatch();
    client_->Cancel(id);
    const Completion done = Next();
    ASSERT_EQ(done.operation, id);
    ASSERT_TRUE(done.status.ok() || absl::IsCancelled(done.status)) << done.status;
  }
  server.join();
  ExpectNothingPending();
}

TEST_F(OperationTest, AnErrorNamesItsFields) {
  Connect();
  const OperationId id = BeginMatch();
  session_.control.Read();
  wire::Error error;
  error.code = static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition);
  error.message = "another spec";
  error.differing_fields = {"kv_dtype", "layers"};
  session_.control.Send({id, error});
  const Completion done = Next();
  EXPECT_EQ(done.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(done.status), HasSubstr("kv_dtype, layers"));
  ExpectNextMessageIsMatch();  // and the server is told nothing about it
}

TEST_F(OperationTest, AnErrorWithoutAValidCodeIsStillAnError) {
  Connect();
  const OperationId id = BeginMatch();
  session_.control.Read();
  session_.control.Send({id, wire::Error{}});
  EXPECT_EQ(Next().status.code(), absl::StatusCode::kUnknown);
}

TEST_F(OperationTest, OperationsUnderWayAreBounded) {
  wire::Limits limits;
  limits.max_requests = 2;
  Connect(Options(), limits);
  BeginMatch();
  BeginMatch();
  const Chain chain = TestChain(1);
  const absl::Status status = client_->MatchAsync(ns_, {&chain, 1}, {}, &queue_, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("max_requests"));
}

TEST_F(OperationTest, AServerThatReadsNothingGetsNoMoreToRead) {
  Connect();
  constexpr int kHashes = 60'000;
  const std::string hashes(16 * kHashes, 'h');
  Chain chain;
  chain.hashes = HashSpan(hashes, 16);
  const MatchOptions options{.deadline_ms = kLongMs};
  absl::Status status;
  int begun = 0;
  while ((status = client_->MatchAsync(ns_, {&chain, 1}, options, &queue_, 0).status()).ok()) ++begun;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("unread"));
  // Nothing is lost of what was begun.
  for (int i = 0; i < begun; ++i) EXPECT_EQ(session_.control.Read().As<wire::Match>().chains[0].hashes, hashes);
}

TEST_F(OperationTest, DestroyingTheClientEndsWhatIsUnderWay) {
  Connect();
  BeginMatch();
  client_.reset();
  EXPECT_EQ(Next().status.code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(queue_.TryNext().has_value());
}

TEST_F(OperationTest, LeasesAreRenewedAndReleased) {
  Connect();
  Lease lease = *Lease::Attach(std::string("\1\0\0\0\0", 5) + "0123456789abcdef");
  auto renewed = std::async(std::launch::async, [&] { return client_->RenewLease(&lease, 9'000); });
  fakes::Received request = session_.control.Read();
  EXPECT_EQ(request.As<wire::RenewLease>().lease, "0123456789abcdef");
  EXPECT_EQ(request.As<wire::RenewLease>().lease_ms, 9'000u);
  session_.control.Send({request.request(), wire::LeaseReply{4'000}});
  EXPECT_EQ(*renewed.get(), 4'000u);
  EXPECT_EQ(lease.granted_ms(), 4'000u);

  auto released = std::async(std::launch::async, [&] { return client_->ReleaseLease(lease); });
  request = session_.control.Read();
  wire::Error error;
  error.code = static_cast<uint32_t>(absl::StatusCode::kNotFound);
  session_.control.Send({request.request(), error});
  EXPECT_TRUE(absl::IsNotFound(released.get()));
  Lease none;
  EXPECT_TRUE(absl::IsInvalidArgument(client_->ReleaseLease(none)));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->RenewLease(&none, 1).status()));
}

TEST_F(OperationTest, TouchIsAcknowledged) {
  Connect();
  const Chain chain = TestChain(2);
  auto touched = std::async(std::launch::async, [&] { return client_->Touch(ns_, {&chain, 1}); });
  const fakes::Received request = session_.control.Read();
  EXPECT_EQ(request.As<wire::Touch>().chains[0].hashes, TestHash(0) + TestHash(1));
  session_.control.Send({request.request(), wire::Ack{}});
  EXPECT_TRUE(touched.get().ok());
}

}  // namespace
}  // namespace quarry
