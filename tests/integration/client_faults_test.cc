// Processes that are killed or stopped in the middle of it all, on either side.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <memory>
#include <optional>

#include "tests/integration/child.h"
#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/integration/relay.h"

namespace quarry::testing {
namespace {

constexpr size_t kShard = 1 << 20;
constexpr size_t kBlocks = 16;
constexpr uint64_t kFirstId = 1;
constexpr uint64_t kOtherId = 5000;
constexpr char kMemory[] = "256MiB";
// A deadline that is to pass, but not before its operation is under way.
constexpr uint32_t kSoonMs = kSanitized ? 10'000 : 5'000;

// ---------------------------------------------------------------- the server

class ServerFaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(blocks_.Put().ok());
    blocks_.buffers().Clear();
  }
  void TearDown() override {
    EXPECT_TRUE(peer_.IsIdle());
    peer_.Leave();
    relay_.reset();
    EXPECT_EQ(server_->Stop(), 0);
  }
  // A get of which a few blocks have come, and one half.
  void GetHalfWay(const GetOptions& options) {
    relay_->Limit(Relay::kToClient, 5 * kShard / 2);
    ASSERT_TRUE(peer_->GetAsync(peer_.ns(), blocks_.Items(), options, &queue_, 0).ok());
    relay_->WaitUntilHeldUp(Relay::kToClient);
  }
  // Every item is said to be there and is, or ended as the operation did.
  void ExpectTruth(const Ended& ended) {
    for (size_t i = 0; i < kBlocks; ++i) {
      const ItemResult& item = ended.done.transfer->items[i];
      EXPECT_EQ(item.status.ok() ? absl::OkStatus() : ended.done.status, item.status);
      if (item.status.ok()) {
        EXPECT_TRUE(blocks_.Holds(i)) << i;
      }
    }
    EXPECT_TRUE(blocks_.buffers().GapsIntact());
  }

  std::unique_ptr<PrivateServer> server_ =
      std::make_unique<PrivateServer>(kMemory, PrivateServer::Flags{.more = {"--drain-timeout=60s"}});
  std::optional<Relay> relay_{server_->address()};
  Peer peer_{relay_->address(), PlainSpec(kShard)};
  Batch blocks_{peer_, kFirstId, kBlocks};
  Batch other_{peer_, kOtherId, 1};
  CompletionQueue queue_;
};

TEST_F(ServerFaultsTest, StoppedMidGetItCostsTheDeadlineAndWritesNothingLate) {
  GetHalfWay({.deadline_ms = kSoonMs});
  server_->Signal(SIGSTOP);
  const Ended ended = WaitForEnd(&queue_);
  EXPECT_TRUE(absl::IsDeadlineExceeded(ended.done.status)) << ended.done.status;
  ExpectTruth(ended);
  blocks_.buffers().Forbid();
  server_->Signal(SIGCONT);  // it now goes on with the get that nobody waits for
  relay_->Open(Relay::kToClient);
  EXPECT_TRUE(other_.Put().ok());
  EXPECT_TRUE(other_.ComesBack());
  blocks_.buffers().Allow();
  ExpectTruth(ended);
  EXPECT_EQ(peer_->counters().reconnects, 0u);
  EXPECT_TRUE(blocks_.ComesBack());
}

TEST_F(ServerFaultsTest, StoppedAndContinuedBeforeTheDeadlineItCostsNothing) {
  GetHalfWay({});
  server_->Signal(SIGSTOP);
  relay_->Open(Relay::kToClient);
  Batch asked_meanwhile(peer_, kFirstId, kBlocks);
  CompletionQueue queue;
  ASSERT_TRUE(peer_->GetAsync(peer_.ns(), asked_meanwhile.Items(), {}, &queue, 0).ok());
  EXPECT_FALSE(queue.Next(50).has_value());
  server_->Signal(SIGCONT);
  EXPECT_TRUE(WaitForEnd(&queue_).done.status.ok());
  EXPECT_TRUE(WaitForEnd(&queue).done.status.ok());
  EXPECT_TRUE(blocks_.HoldsAll());
  EXPECT_TRUE(asked_meanwhile.HoldsAll());
}

TEST_F(ServerFaultsTest, StoppedItCostsAPutAndAMatchTheirDeadlines) {
  server_->Signal(SIGSTOP);
  const absl::Status put = other_.Put({.deadline_ms = 100});
  EXPECT_TRUE(absl::IsDeadlineExceeded(put)) << put;
  const Chain chain = blocks_.AsChain();
  const auto match = peer_->Match(peer_.ns(), {&chain, 1}, {.deadline_ms = 100});
  EXPECT_TRUE(absl::IsDeadlineExceeded(match.status())) << match.status();
  server_->Signal(SIGCONT);
  ASSERT_TRUE(other_.EventuallyPuts());  // at first the put that came too late may still be under way
  EXPECT_TRUE(other_.ComesBack());
  EXPECT_TRUE(server_->BecomesIdle(1));  // the lease of the match that came too late is released
}

TEST_F(ServerFaultsTest, KilledMidGetItIsSaidAtOnceAndFoundAgainOnItsPort) {
  GetHalfWay({});
  const std::string address = server_->address();
  server_->Kill();
  const Ended ended = WaitForEnd(&queue_);
  EXPECT_TRUE(absl::IsUnavailable(ended.done.status)) << ended.done.status;
  ExpectTruth(ended);
  // Fails at once, also later on, while nobody is there.
  EXPECT_TRUE(absl::IsUnavailable(blocks_.Get().status()));
  relay_->Open(Relay::kToClient);
  server_ = std::make_unique<PrivateServer>(kMemory, PrivateServer::Flags{.transfer = address});
  ASSERT_TRUE(other_.EventuallyPuts());
  EXPECT_TRUE(other_.ComesBack());
  EXPECT_TRUE(blocks_.IsMissed(MissCause::kNeverStored));
  EXPECT_GE(peer_->counters().reconnects, 1u);
}

TEST_F(ServerFaultsTest, KilledMidPutItIsSaidAndThePutCanBeRepeated) {
  blocks_.MoveTo(kOtherId);
  blocks_.Fill();
  relay_->Limit(Relay::kToServer, 5 * kShard / 2);
  ASSERT_TRUE(peer_->PutAsync(peer_.ns(), blocks_.Items(), {}, &queue_, 0).ok());
  relay_->WaitUntilHeldUp(Relay::kToServer);
  const std::string address = server_->address();
  server_->Kill();
  const Ended ended = WaitForEnd(&queue_);
  EXPECT_TRUE(absl::IsUnavailable(ended.done.status)) << ended.done.status;
  relay_->Open(Relay::kToServer);
  server_ = std::make_unique<PrivateServer>(kMemory, PrivateServer::Flags{.transfer = address});
  ASSERT_TRUE(blocks_.EventuallyPuts());
  EXPECT_TRUE(blocks_.ComesBack());
}

TEST_F(ServerFaultsTest, DrainingItFinishesWhatIsUnderWayAndRefusesWhatIsNew) {
  Relay put_relay(server_->address());
  Peer putter(put_relay.address(), PlainSpec(kShard));
  Batch put(putter, kOtherId, kBlocks / 2);
  put.Fill();
  CompletionQueue put_queue;
  put_relay.Limit(Relay::kToServer, 5 * kShard / 2);
  ASSERT_TRUE(putter->PutAsync(putter.ns(), put.Items(), {}, &put_queue, 0).ok());
  put_relay.WaitUntilHeldUp(Relay::kToServer);
  GetHalfWay({});
  server_->Signal(SIGTERM);
  ASSERT_TRUE(server_->Until([](const auto& metrics) { return metrics.at("quarry_draining") == 1; }));

  Batch late(peer_, kFirstId, 1);
  EXPECT_TRUE(absl::IsUnavailable(late.Get().status()));
  EXPECT_TRUE(absl::IsUnavailable(late.Put()));
  EXPECT_TRUE(absl::IsUnavailable(late.Match(0).status()));
  ClientOptions options;
  options.server = server_->address();
  EXPECT_TRUE(absl::IsUnavailable(Client::Create(options).status()));

  relay_->Open(Relay::kToClient);
  const Ended got = WaitForEnd(&queue_);
  EXPECT_TRUE(got.done.status.ok()) << got.done.status;
  EXPECT_TRUE(blocks_.HoldsAll());
  put_relay.Open(Relay::kToServer);
  const Ended stored = WaitForEnd(&put_queue);
  EXPECT_TRUE(stored.done.status.ok()) << stored.done.status;
  for (const ItemResult& item : stored.done.transfer->items) EXPECT_EQ(item.outcome, PutOutcome::kStored);
  EXPECT_EQ(server_->Wait(), 0);
  putter.Leave();
  server_ = std::make_unique<PrivateServer>(kMemory);  // for TearDown
}

// ---------------------------------------------------------------- clients

// Hears an address, puts or gets there and says so; the relay in between keeps it from
// ever getting done.
int PutForEver(const Line& line) {
  Peer peer(line.Hear(), PlainSpec(kShard));
  Batch blocks(peer, kOtherId, kBlocks);
  return blocks.Put().ok() ? 0 : 1;
}
int GetForEver(const Line& line) {
  Peer peer(line.Hear(), PlainSpec(kShard));
  Batch blocks(peer, kFirstId, kBlocks);
  return blocks.ComesBack() ? 0 : 1;
}

TEST(ClientKilledTest, MidPutItHasPublishedNothingAndTheMemoryIsBack) {
  PrivateServer server(kMemory);
  Child child(PutForEver);
  Relay relay(server.address());
  relay.Limit(Relay::kToServer, 1 << 10);  // the handshake passes
  child.line().Say(relay.address());
  ASSERT_TRUE(server.Until(
      [](const auto& metrics) { return metrics.at(kInFlightPuts) > 0 && metrics.at(kInFlightBytes) > 0; }));
  EXPECT_GT(server.Metric(kUsedBytes), 0);
  relay.Limit(Relay::kToServer, kShard / 2);
  relay.WaitUntilHeldUp(Relay::kToServer);
  child.Kill();
  EXPECT_TRUE(server.BecomesIdle(0));
  EXPECT_EQ(server.Metric(kUsedBytes), 0);
  EXPECT_EQ(server.Metric("quarry_blocks"), 0);
  Peer peer(server.address(), PlainSpec(kShard));
  Batch blocks(peer, kOtherId, kBlocks);
  const auto got = blocks.Get();
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t i = 0; i < kBlocks; ++i) EXPECT_NE(got->items[i].miss, MissCause::kNone) << i;
  EXPECT_TRUE(blocks.Untouched());
  EXPECT_TRUE(blocks.Put().ok());
  EXPECT_TRUE(blocks.ComesBack());
}

// Another process whose get is held up half-way.
struct HeldUpGetter {
  void HoldUp() {
    ASSERT_TRUE(blocks.Put().ok());
    relay.Limit(Relay::kToClient, kShard / 2);
    child.line().Say(relay.address());
    relay.WaitUntilHeldUp(Relay::kToClient);
  }

  PrivateServer server{kMemory};
  Child child{GetForEver};  // forked before this process has a client
  Peer peer{server.address(), PlainSpec(kShard)};
  Batch blocks{peer, kFirstId, kBlocks};
  Relay relay{server.address()};
};

TEST(ClientKilledTest, MidGetItLeavesNothing) {
  HeldUpGetter getter;
  ASSERT_NO_FATAL_FAILURE(getter.HoldUp());
  auto& [server, child, peer, blocks, relay] = getter;
  EXPECT_GT(server.Metric(kInFlightBytes), 0);
  child.Kill();
  EXPECT_TRUE(server.BecomesIdle(1));
  EXPECT_EQ(server.Metric(kUsedBytes), kBlocks * kShard);
  EXPECT_TRUE(blocks.ComesBack());
}

// The server gives the put up at the deadline and says so; the client wakes up later, and
// finds that answer beside its own timer.
int PutUntilTheDeadline(const Line& line) {
  Peer peer(line.Hear(), PlainSpec(kShard));
  Batch blocks(peer, kOtherId, kBlocks);
  const absl::Status status = blocks.Put({.deadline_ms = kSoonMs});
  return absl::IsDeadlineExceeded(status) ? 0 : 1;
}
int GetUntilTheDeadline(const Line& line) {
  Peer peer(line.Hear(), PlainSpec(kShard));
  Batch blocks(peer, kFirstId, kBlocks);
  const absl::Status status = blocks.Get({.deadline_ms = kSoonMs}).status();
  return absl::IsDeadlineExceeded(status) ? 0 : 1;
}

TEST(ClientStoppedTest, BeyondItsDeadlineItsOperationsEndWithThat) {
  struct Case {
    int (*body)(const Line&);
    Relay::Direction direction;
    const char* gauge;
  };
  for (const Case& c : {Case{PutUntilTheDeadline, Relay::kToServer, kInFlightPuts},
                        Case{GetUntilTheDeadline, Relay::kToClient, kInFlightBytes}}) {
    PrivateServer server(kMemory);
    Child child(c.body);
    {
      Peer peer(server.address(), PlainSpec(kShard));
      Batch blocks(peer, kFirstId, kBlocks);
      ASSERT_TRUE(blocks.Put().ok());
    }
    Relay relay(server.address());
    relay.Limit(c.direction, kShard / 2);
    child.line().Say(relay.address());
    ASSERT_TRUE(server.Until([&c](const auto& metrics) { return metrics.at(c.gauge) > 0; }));
    child.Signal(SIGSTOP);
    relay.Open(c.direction);
    ASSERT_TRUE(server.BecomesIdle(1));
    child.Signal(SIGCONT);
    EXPECT_EQ(child.Wait(), 0) << c.gauge;
  }
}

TEST(ClientStoppedTest, ItCostsOnlyItselfAndGoesOnWhenContinued) {
  HeldUpGetter getter;
  ASSERT_NO_FATAL_FAILURE(getter.HoldUp());
  auto& [server, child, peer, blocks, relay] = getter;
  child.Signal(SIGSTOP);
  relay.Open(Relay::kToClient);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(blocks.ComesBack());
    blocks.MoveTo(kOtherId + static_cast<uint64_t>(i) * kBlocks);
    EXPECT_TRUE(blocks.Put().ok());
  }
  child.Signal(SIGCONT);
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_TRUE(server.BecomesIdle(1));
}

}  // namespace
}  // namespace quarry::testing
