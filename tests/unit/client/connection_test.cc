// How a client connects, breaks and connects again.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/match.h"
#include "tests/unit/client/client_fixture.h"

namespace quarry {
namespace {

using testing::HasSubstr;

class ConnectionTest : public ClientFixture {
 protected:
  absl::Status CreateWhile(const ClientOptions& options, const std::function<void()>& serve) {
    auto created = std::async(std::launch::async, [&] { return Client::Create(options).status(); });
    serve();
    return created.get();
  }

  // Waits until the client has noticed, by its own completions, that it is connected.
  void AcceptAgain(uint32_t handle, absl::string_view id = TestNamespaceId()) {
    session_ = node_.AcceptSession();
    fakes::FakeNode::AnswerOpenNamespace(&session_.control, handle, id);
  }
  // Repeats the match until one gets through to the new session, and returns its request.
  fakes::Received MatchUntilSent() {
    const Chain chain = TestChain(1);
    const MatchOptions options{.deadline_ms = kLongMs};
    while (!client_->MatchAsync(ns_, {&chain, 1}, options, &queue_, 0).ok()) std::this_thread::yield();
    return session_.control.Read();
  }
};

TEST_F(ConnectionTest, NobodyListeningIsUnavailable) {
  node_.StopListening();
  EXPECT_EQ(Client::Create(Options()).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ConnectionTest, AnotherMajorVersionNamesBoth) {
  const absl::Status status = CreateWhile(Options(), [&] {
    fakes::FakeStream control = node_.Accept();
    const fakes::Received hello = control.Read();
    EXPECT_EQ(hello.As<wire::Hello>().major, 1u);
    wire::HelloReply reply;
    reply.major = 2;
    reply.minor = 3;
    reply.session = "0123456789abcdef";
    control.Send({hello.request(), reply});
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("2.3"));
  EXPECT_THAT(Message(status), HasSubstr("1.0"));
}

TEST_F(ConnectionTest, TheServersRefusalIsPassedOn) {
  const absl::Status status = CreateWhile(Options(), [&] {
    fakes::FakeStream control = node_.Accept();
    wire::Error error;
    error.code = static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition);
    error.message = "protocol 1 is not spoken here, 9 is";
    control.Send({control.Read().request(), error});
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("9 is"));
}

TEST_F(ConnectionTest, AnotherMinorVersionWorks) {
  auto created = std::async(std::launch::async, [&] { return Client::Create(Options()); });
  fakes::FakeStream control = node_.Accept();
  wire::HelloReply reply;
  reply.minor = wire::kMinorVersion + 1;
  reply.session = "0123456789abcdef";
  control.Send({control.Read().request(), reply});
  fakes::FakeStream data = node_.Accept();
  data.Send({data.Read().request(), reply});
  EXPECT_TRUE(created.get().ok());
}

TEST_F(ConnectionTest, ASilentServerEndsCreateAtItsTimeout) {
  ClientOptions options = Options();
  options.connect_timeout_ms = 50;
  EXPECT_EQ(Client::Create(options).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ConnectionTest, AServerThatClosesDuringTheHandshakeIsUnavailable) {
  const absl::Status status = CreateWhile(Options(), [&] { node_.Accept().Read(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ConnectionTest, AServerThatIsNoneIsUnavailable) {
  const absl::Status status =
      CreateWhile(Options(), [&] { node_.Accept().SendRaw("HTTP/1.1 400 Bad Request\r\n\r\n"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ConnectionTest, AClosedConnectionEndsOperationsAndIsReplaced) {
  Connect();
  const Chain chain = TestChain(1);
  ASSERT_TRUE(client_->MatchAsync(ns_, {&chain, 1}, {}, &queue_, 41).ok());
  session_ = {};
  const Completion done = Next();
  EXPECT_EQ(done.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(done.user_data, 41u);
  EXPECT_FALSE(done.held);

  AcceptAgain(kTestHandle + 1);
  // Under the new handle: the namespace was opened again.
  EXPECT_EQ(MatchUntilSent().As<wire::Match>().handle, kTestHandle + 1);
  EXPECT_EQ(client_->counters().reconnects, 1u);
}

TEST_F(ConnectionTest, WithoutAConnectionOperationsFailAtOnce) {
  Connect();
  node_.StopListening();
  session_ = {};
  const Chain chain = TestChain(1);
  absl::Status status;
  // Until the client has seen it, operations begin and end with Unavailable.
  do {
    status = client_->Match(ns_, {&chain, 1}).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kUnavailable);
  } while (!absl::StrContains(status.message(), "not connected"));
  EXPECT_EQ(client_->OpenNamespace("other", TestSpec()).status().code(), absl::StatusCode::kUnavailable);
  ExpectNothingPending();

  node_.ListenAgain();
  AcceptAgain(kTestHandle);
  MatchUntilSent();
}

TEST_F(ConnectionTest, GarbageEndsTheConnectionAndAnotherOneFollows) {
  for (const std::string& garbage :
       {std::string("\x05\0\0\0\xff\xff\xff\xff\xff", 9), std::string("\xff\xff\xff\xff", 4), std::string(4, '\0')}) {
    Connect();
    const Chain chain = TestChain(1);
    ASSERT_TRUE(client_->MatchAsync(ns_, {&chain, 1}, {}, &queue_, 0).ok());
    session_.control.SendRaw(garbage);
    EXPECT_EQ(Next().status.code(), absl::StatusCode::kUnavailable);
    AcceptAgain(kTestHandle);
    MatchUntilSent();
    client_.reset();
    EXPECT_EQ(Next().status.code(), absl::StatusCode::kCancelled);
    EXPECT_FALSE(queue_.TryNext().has_value());
  }
}

TEST_F(ConnectionTest, AReplyThatDoesNotFitItsRequestEndsTheConnection) {
  Connect();
  const Chain chain = TestChain(2);
  ASSERT_TRUE(client_->MatchAsync(ns_, {&chain, 1}, {}, &queue_, 0).ok());
  wire::MatchReply reply;
  reply.chains = {{"\1", 0, 1}};  // one state for two hashes
  session_.control.Send({session_.control.Read().request(), reply});
  const Completion done = Next();
  EXPECT_EQ(done.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(done.status), HasSubstr("does not fit"));
  AcceptAgain(kTestHandle);
}

TEST_F(ConnectionTest, ANamespaceThatCannotBeOpenedAgainSaysWhy) {
  Connect();
  session_ = {};
  session_ = node_.AcceptSession();
  const fakes::Received open = session_.control.Read();
  wire::Error error;
  error.code = static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition);
  error.message = "the name is taken";
  error.differing_fields = {"kv_dtype"};
  session_.control.Send({open.request(), error});
  const Chain chain = TestChain(1);
  absl::Status status;
  do {
    status = client_->Match(ns_, {&chain, 1}).status();
  } while (absl::IsUnavailable(status));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("kv_dtype"));
}

TEST_F(ConnectionTest, DestroyingTheClientEndsAHandshakeThatGetsNoAnswer) {
  ClientOptions options = Options();
  options.connect_timeout_ms = 600'000;  // longer than the test may take
  Connect(options);
  session_ = {};
  const fakes::FakeStream silent = node_.Accept();
  client_.reset();
}

TEST_F(ConnectionTest, DestroyingTheClientEndsADialThatGetsNoAnswer) {
  ClientOptions options = Options();
  options.connect_timeout_ms = 600'000;  // longer than the test may take
  Connect(options);
  node_.StopListening();
  node_.ListenWithoutRoom();
  session_ = {};
  while (!node_.IsDialled()) std::this_thread::yield();
  client_.reset();
}

TEST_F(ConnectionTest, AForkedChildIsRefusedAndTheParentGoesOn) {
  Connect();
  const Chain chain = TestChain(1);
  const pid_t child = fork();
  if (child == 0) {
    const auto refused = [](const absl::Status& status) { return absl::IsFailedPrecondition(status); };
    bool ok = refused(client_->Match(ns_, {&chain, 1}).status());
    ok = ok && refused(client_->OpenNamespace("ns", TestSpec()).status());
    ok = ok && refused(client_->RegisterMemory(&ok, 1).status());
    ok = ok && refused(client_->Get(ns_, Items({0})).status());
    client_->Cancel(1);
    client_.reset();
    region_ = {};
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);

  auto match = std::async(std::launch::async, [&] { return client_->Match(ns_, {&chain, 1}); });
  wire::MatchReply reply;
  reply.chains = {{absl::string_view("\0", 1), 0, 0}};
  session_.control.Send({session_.control.Read().request(), reply});
  EXPECT_TRUE(match.get().ok());
}

TEST_F(ConnectionTest, AutoSaysOnceWhichTransportItPickedAndWhy) {
  std::vector<std::string> lines;
  ClientOptions options = Options();
  options.log = [&lines](absl::string_view line) { lines.emplace_back(line); };
  Connect(options);
  session_ = {};
  AcceptAgain(kTestHandle);
  MatchUntilSent();
  client_.reset();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("transport tcp"));
  EXPECT_THAT(lines[0], HasSubstr(node_.address()));
  EXPECT_THAT(lines[0], HasSubstr("because"));
}

TEST_F(ConnectionTest, ATransportThatWasNamedIsNoNews) {
  std::vector<std::string> lines;
  ClientOptions options = Options();
  options.log = [&lines](absl::string_view line) { lines.emplace_back(line); };
  options.transport = "tcp";
  Connect(options);
  client_.reset();
  EXPECT_THAT(lines, testing::IsEmpty());
}

TEST_F(ConnectionTest, ANamespaceBelongsToItsClient) {
  Connect();
  const Namespace foreign = ns_;
  region_ = {};
  Connect();
  const Chain chain = TestChain(1);
  EXPECT_THAT(Message(client_->Match(foreign, {&chain, 1}).status()), HasSubstr("another client"));
  EXPECT_THAT(Message(client_->Match(Namespace(), {&chain, 1}).status()), HasSubstr("not opened"));
}

}  // namespace
}  // namespace quarry
