// Lease tokens: who may use them, how long they hold, and what they hold.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <string>

#include "tests/integration/child.h"
#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/integration/relay.h"

namespace quarry::testing {
namespace {

constexpr size_t kShard = 256 << 10;
constexpr uint64_t kFirstId = 1;
constexpr uint64_t kFloodId = 1'000'000;
constexpr size_t kBlocks = 32;
constexpr char kMemory[] = "128MiB";  // of which 64 MiB are the arena
constexpr size_t kArena = 64 << 20;
constexpr uint32_t kLongMs = 60'000;
constexpr uint32_t kShortMs = kSanitized ? 4'000 : 1'000;

// Puts so many bytes of other blocks.
absl::Status Flood(const Peer& peer, size_t bytes) {
  Batch batch(peer, kFloodId, 32);
  for (size_t done = 0; done < bytes; done += 32 * kShard) {
    batch.MoveTo(kFloodId + done / kShard);
    if (absl::Status status = batch.Put(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

class ClientLeasesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    peer_.Leave();
    EXPECT_EQ(server_.Stop(), 0);
  }
  Lease Leased(uint32_t lease_ms) {
    auto match = blocks_.Match(lease_ms);
    EXPECT_TRUE(match.ok() && match->usable_tokens == kBlocks * 16) << match.status();
    return match.ok() ? match->lease : Lease();
  }
  ::testing::AssertionResult LeasesAreLeft(int count) const {
    return server_.Until([count](const auto& metrics) { return metrics.at(kLeases) == count; });
  }
  // Used by `peer` in every way that there is.
  void ExpectUnknown(const Peer& peer, Batch* blocks, Lease lease) {
    EXPECT_TRUE(absl::IsNotFound(blocks->Get({.lease = lease}).status()));
    EXPECT_TRUE(blocks->Untouched());
    EXPECT_TRUE(absl::IsNotFound(peer->RenewLease(&lease, kLongMs).status()));
    EXPECT_TRUE(absl::IsNotFound(peer->ReleaseLease(lease)));
  }

  PrivateServer server_{kMemory, {.more = {"--max-lease=90s"}}};
  Peer peer_{server_.address(), PlainSpec(kShard)};
  Batch blocks_{peer_, kFirstId, kBlocks};
};

// A process of its own: it hears where the server is, then a lease; says "ok" when the
// lease is good and every byte of its blocks right, else what is wrong.
int UseTheLeaseOfAnother(const Line& line) {
  const std::string address = line.Hear();
  auto lease = Lease::Attach(line.Hear());
  if (!lease.ok()) return 1;
  Peer peer(address, PlainSpec(kShard));
  Batch blocks(peer, kFirstId, kBlocks);
  const auto comes_back = blocks.ComesBack({.lease = *lease});
  const auto renewed = peer->RenewLease(&*lease, kLongMs);
  if (!comes_back) {
    line.Say(comes_back.message());
  } else if (!renewed.ok() || *renewed != kLongMs) {
    line.Say("not renewed");
  } else {
    line.Say("ok");
    if (line.Hear() == "release" && !peer->ReleaseLease(*lease).ok()) return 2;
  }
  return 0;
}

TEST(LeaseOfAnotherProcessTest, OutlivesItsClientAndHoldsThroughAFloodOfThreeArenas) {
  PrivateServer server(kMemory);
  Child child(UseTheLeaseOfAnother);
  std::string serialized;
  {
    Peer owner(server.address(), PlainSpec(kShard));
    Batch blocks(owner, kFirstId, kBlocks);
    ASSERT_TRUE(blocks.Put().ok());
    const auto match = blocks.Match(kLongMs);
    ASSERT_TRUE(match.ok()) << match.status();
    serialized = match->lease.Serialize();
  }
  Peer other(server.address(), PlainSpec(kShard));
  ASSERT_TRUE(Flood(other, 3 * kArena).ok());
  child.line().Say(server.address());
  child.line().Say(serialized);
  EXPECT_EQ(child.line().Hear(), "ok");
  EXPECT_EQ(server.Metric(kLeases), 1);
  child.line().Say("release");
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_TRUE(server.BecomesIdle(1));
  ASSERT_TRUE(Flood(other, 2 * kArena).ok());
  Batch blocks(other, kFirstId, kBlocks);
  EXPECT_TRUE(blocks.IsMissed(MissCause::kEvicted));
  other.Leave();
  EXPECT_EQ(server.Stop(), 0);
}

TEST_F(ClientLeasesTest, AnotherClientMayUseRenewAndReleaseIt) {
  ASSERT_TRUE(blocks_.Put().ok());
  Peer other(server_.address(), PlainSpec(kShard));
  Batch theirs(other, kFirstId, kBlocks);
  auto attached = Lease::Attach(Leased(kLongMs).Serialize());
  ASSERT_TRUE(attached.ok()) << attached.status();
  EXPECT_EQ(attached->granted_ms(), kLongMs);
  ASSERT_TRUE(Flood(other, 2 * kArena).ok());
  EXPECT_TRUE(theirs.ComesBack({.lease = *attached}));
  EXPECT_EQ(other->RenewLease(&*attached, kLongMs / 2).value_or(0), kLongMs / 2);
  EXPECT_EQ(attached->granted_ms(), kLongMs / 2);
  EXPECT_TRUE(other->ReleaseLease(*attached).ok());
  ExpectUnknown(peer_, &blocks_, *attached);
}

TEST_F(ClientLeasesTest, ItEndsByItsTimeUnlessRenewedAndIsCapped) {
  ASSERT_TRUE(blocks_.Put().ok());
  Lease renewed = Leased(kShortMs);
  EXPECT_EQ(renewed.granted_ms(), kShortMs);
  EXPECT_EQ(peer_->RenewLease(&renewed, 3'600'000).value_or(0), 90'000u);
  const Lease ends = Leased(kShortMs);  // later than the other one would have ended
  ASSERT_TRUE(LeasesAreLeft(1));
  ExpectUnknown(peer_, &blocks_, ends);
  ASSERT_TRUE(Flood(peer_, 2 * kArena).ok());
  EXPECT_TRUE(blocks_.ComesBack({.lease = renewed}));

  const Lease capped = Leased(UINT32_MAX);
  EXPECT_EQ(capped.granted_ms(), 90'000u);
  EXPECT_TRUE(peer_->ReleaseLease(capped).ok());
  EXPECT_EQ(peer_->RenewLease(&renewed, 1).value_or(0), 1u);
  ASSERT_TRUE(LeasesAreLeft(0));
  ASSERT_TRUE(Flood(peer_, 2 * kArena).ok());
  EXPECT_TRUE(blocks_.IsMissed(MissCause::kEvicted));
}

TEST_F(ClientLeasesTest, AWrongTokenIsNotFoundAndMovesNothing) {
  ASSERT_TRUE(blocks_.Put().ok());
  const std::string good = Leased(kLongMs).Serialize();
  for (const size_t byte : {good.size() - 16, good.size() - 1}) {
    std::string bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ 1);
    const auto lease = Lease::Attach(bad);
    ASSERT_TRUE(lease.ok()) << lease.status();
    ExpectUnknown(peer_, &blocks_, *lease);
  }
  // The right one is good for its own namespace only.
  ModelSpec spec = PlainSpec(kShard);
  const auto elsewhere = peer_->OpenNamespace("elsewhere", spec);
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status();
  const auto lease = Lease::Attach(good);
  ASSERT_TRUE(lease.ok()) << lease.status();
  blocks_.buffers().Clear();
  EXPECT_TRUE(absl::IsNotFound(peer_->Get(*elsewhere, blocks_.Items(), {.lease = *lease}).status()));
  EXPECT_TRUE(blocks_.Untouched());
  EXPECT_TRUE(blocks_.ComesBack({.lease = *lease}));
}

TEST_F(ClientLeasesTest, AGetSlowerThanItsLeaseHasEveryByteThroughAFlood) {
  ASSERT_TRUE(blocks_.Put().ok());
  Relay relay(server_.address());
  Peer slow(relay.address(), PlainSpec(kShard));
  Batch theirs(slow, kFirstId, kBlocks);
  auto match = theirs.Match(kLongMs);
  ASSERT_TRUE(match.ok()) << match.status();
  relay.Limit(Relay::kToClient, 3 * kShard / 2);
  CompletionQueue queue;
  theirs.buffers().Clear();
  ASSERT_TRUE(slow->GetAsync(slow.ns(), theirs.Items(), {.lease = match->lease}, &queue, 0).ok());
  relay.WaitUntilHeldUp(Relay::kToClient);
  ASSERT_EQ(slow->RenewLease(&match->lease, 1).value_or(0), 1u);
  ASSERT_TRUE(LeasesAreLeft(0));
  ASSERT_TRUE(Flood(peer_, 3 * kArena).ok());
  relay.Open(Relay::kToClient);
  const Ended ended = WaitForEnd(&queue);
  EXPECT_TRUE(ended.done.status.ok()) << ended.done.status;
  EXPECT_EQ(ended.done.transfer->bytes, kBlocks * kShard);
  EXPECT_TRUE(theirs.HoldsAll());
  slow.Leave();
  // What the get alone had kept is memory again, and others have long taken the names.
  ASSERT_TRUE(Flood(peer_, 2 * kArena).ok());
  EXPECT_TRUE(blocks_.IsMissed(MissCause::kEvicted));
}

TEST_F(ClientLeasesTest, ALeaseOutlivesTheConnectionItWasTakenOn) {
  ASSERT_TRUE(blocks_.Put().ok());
  Lease lease;
  {
    Relay relay(server_.address());
    Peer gone(relay.address(), PlainSpec(kShard));
    Batch theirs(gone, kFirstId, kBlocks);
    const auto match = theirs.Match(kLongMs);
    ASSERT_TRUE(match.ok()) << match.status();
    lease = match->lease;
  }
  ASSERT_TRUE(server_.Until([](const auto& metrics) { return metrics.at("quarry_sessions") == 1; }));
  ASSERT_TRUE(Flood(peer_, 2 * kArena).ok());
  EXPECT_TRUE(blocks_.ComesBack({.lease = lease}));
}

}  // namespace
}  // namespace quarry::testing
