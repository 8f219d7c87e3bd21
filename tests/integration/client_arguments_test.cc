// Bad arguments to quarry::client: each is refused by its name, moves nothing, and costs
// nobody the connection.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"

namespace quarry::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kShard = 200'000;
constexpr uint64_t kStoredId = 1;
constexpr size_t kBlocks = 4;

class BadArgumentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(stored_.Put().ok());
    stored_.buffers().Clear();
    fresh_.Fill();
  }
  void TearDown() override {
    EXPECT_TRUE(stored_.Untouched());
    EXPECT_TRUE(stored_.ComesBack());
    EXPECT_TRUE(fresh_.IsMissed(MissCause::kNeverStored));
    EXPECT_TRUE(peer_.IsIdle());
    EXPECT_EQ(peer_->counters().reconnects, 0u);
    EXPECT_TRUE(server_.BecomesIdle(1));
    peer_.Leave();
    EXPECT_EQ(server_.Stop(), 0);
  }

  // With one bad item, a get and a put are refused as a whole; the message names it.
  void ExpectGetRefused(const std::function<void(Item&)>& spoil, const std::string& field) {
    ExpectRefused(stored_, spoil, field,
                  [this](std::vector<Item> items) { return peer_->Get(peer_.ns(), std::move(items)).status(); });
  }
  void ExpectPutRefused(const std::function<void(Item&)>& spoil, const std::string& field) {
    ExpectRefused(fresh_, spoil, field,
                  [this](std::vector<Item> items) { return peer_->Put(peer_.ns(), std::move(items)).status(); });
  }
  static void ExpectRefused(const Batch& batch, const std::function<void(Item&)>& spoil, const std::string& field,
                            const std::function<absl::Status(std::vector<Item>)>& call) {
    std::vector<Item> items = batch.Items();
    spoil(items[2]);
    const absl::Status status = call(std::move(items));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("items[2]"), HasSubstr(field)));
  }

  PrivateServer server_{"160MiB"};
  Peer peer_{server_.address(), PlainSpec(kShard)};
  Batch stored_{peer_, kStoredId, kBlocks};
  Batch fresh_{peer_, kStoredId + 1000, kBlocks};
};

TEST_F(BadArgumentsTest, HashesOfAWrongLength) {
  for (const size_t length : {0, 15, 31, 33, 65}) {
    const std::string hash(length, 'x');
    ExpectGetRefused([&](Item& item) { item.hash = hash; }, "hash: 32 bytes");
    ExpectPutRefused([&](Item& item) { item.hash = hash; }, "hash: 32 bytes");
  }
  for (const uint32_t length : {15u, 16u, 65u}) {
    const std::string hashes(length, 'x');
    const Chain chain{.hashes = HashSpan(hashes, length)};
    const absl::Status status = peer_->Match(peer_.ns(), {&chain, 1}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("chains[0].hashes"));
  }
}

TEST_F(BadArgumentsTest, LengthsThatTheSpecDoesNotAllow) {
  for (const auto& spoil : std::vector<std::function<void(Item&)>>{
           [](Item& item) { item.segments.pop_back(); },
           [](Item& item) { item.segments[0].length -= 1; },
           [](Item& item) { item.segments[0].count += 1; },
       }) {
    ExpectGetRefused(spoil, "segments");
    ExpectPutRefused(spoil, "segments");
  }
  ExpectGetRefused([](Item& item) { item.offset = kShard; }, "offset");
  ExpectGetRefused([](Item& item) { item.offset = 1, item.bytes = kShard; }, "bytes");
  ExpectPutRefused([](Item& item) { item.offset = 1; }, "offset");
}

TEST_F(BadArgumentsTest, SegmentListsOfEveryBadKind) {
  std::vector<std::byte> elsewhere(kShard);
  const Segment whole{elsewhere.data(), kShard, 0, 1};
  std::byte* const base = stored_.buffers().range().base;
  const size_t bytes = stored_.buffers().range().bytes;
  for (const SegmentList& bad : std::vector<SegmentList>{
           {},
           {whole},                                                     // not registered
           {{base + bytes - kShard + 1, kShard, 0, 1}},                 // beyond its end
           {{base, 0, 0, 1}, {base, kShard, 0, 1}},                     // an empty piece
           {{base, kShard, 0, 0}},                                      // no pieces
           {{base, kShard / 2, SIZE_MAX / 2, 2}},                       // overflow
           {{base, SIZE_MAX, 0, 1}},                                    // overflow
           {{nullptr, kShard, 0, 1}},                                   // nowhere
           {{base, 1, 1, kMaxSegmentPieces + 1}, {base, kShard, 0, 1}}  // too many pieces
       }) {
    ExpectGetRefused([&](Item& item) { item.segments = bad; }, "segments");
    ExpectPutRefused([&](Item& item) { item.segments = bad; }, "segments");
  }
  // Pieces that share bytes are bad as destinations only.
  ExpectGetRefused([&](Item& item) { item.segments = {{base, kShard / 2, kShard / 4, 2}}; }, "segments");
  ExpectGetRefused([&](Item& item) { item.segments = stored_.buffers().segments(0); }, "shares bytes");
}

TEST_F(BadArgumentsTest, GroupsAndShardsThatThereAreNot) {
  ExpectGetRefused([](Item& item) { item.group = 1; }, "group");
  ExpectPutRefused([](Item& item) { item.shard = 1; }, "shard");
}

TEST_F(BadArgumentsTest, BatchesBeyondTheLimit) {
  constexpr size_t kMost = 65'536;
  std::vector<Item> items(kMost + 1, stored_.ItemAt(0));
  absl::Status status = peer_->Get(peer_.ns(), items).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("items: 1 to 65536"));
  status = peer_->Put(peer_.ns(), std::move(items)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_TRUE(absl::IsInvalidArgument(peer_->Get(peer_.ns(), {}).status()));

  const std::string hashes((kMost + 1) * kHashBytes, 'x');
  const Chain chain{.hashes = HashSpan(hashes, kHashBytes)};
  status = peer_->Match(peer_.ns(), {&chain, 1}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("65536"));
}

TEST_F(BadArgumentsTest, NamespacesThatAreNotOpen) {
  const absl::Status none = peer_->Get(Namespace(), stored_.Items()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(none)) << none;
  Peer other(server_.address(), PlainSpec(kShard));
  const absl::Status others = peer_->Get(other.ns(), stored_.Items()).status();
  EXPECT_TRUE(absl::IsInvalidArgument(others)) << others;
}

// ---------------------------------------------------------------- specs

TEST(NamespaceClashTest, NamesTheFieldsOrOpensASiblingThatIsApart) {
  PrivateServer server("160MiB");
  Peer first(server.address(), PlainSpec(kShard));
  Batch blocks(first, kStoredId, kBlocks);
  ASSERT_TRUE(blocks.Put().ok());

  ModelSpec spec = PlainSpec(kShard);
  spec.weights_revision = "another";
  spec.groups[0].tokens_per_block = 32;
  const absl::Status clash = first->OpenNamespace(first.ns().name(), spec).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(clash)) << clash;
  EXPECT_THAT(std::string(clash.message()),
              AllOf(HasSubstr("weights_revision"), HasSubstr("groups[0].tokens_per_block")));
  const auto sibling = first->OpenNamespace(first.ns().name(), spec, {.sibling_on_mismatch = true});
  ASSERT_TRUE(sibling.ok()) << sibling.status();
  EXPECT_THAT(sibling->differing_fields(), ElementsAre("weights_revision", "groups[0].tokens_per_block"));
  EXPECT_NE(sibling->id(), first.ns().id());
  // Same hashes, other blocks.
  blocks.buffers().Clear();
  const auto got = first->Get(*sibling, blocks.Items());
  ASSERT_TRUE(got.ok()) << got.status();
  for (const ItemResult& item : got->items) EXPECT_EQ(item.miss, MissCause::kNeverStored);
  EXPECT_TRUE(blocks.Untouched());
  EXPECT_TRUE(blocks.ComesBack());
  EXPECT_TRUE(first->OpenNamespace(first.ns().name(), PlainSpec(kShard)).value().differing_fields().empty());
}

TEST(NamespaceClashTest, ASiblingSurvivesTheServersRestart) {
  auto server = std::make_unique<PrivateServer>("160MiB");
  const std::string address = server->address();
  Peer peer(address, PlainSpec(kShard));
  Batch blocks(peer, kStoredId, kBlocks);
  ModelSpec spec = PlainSpec(kShard);
  spec.weights_revision = "another";
  const std::string longest(256, 'n');
  ASSERT_TRUE(peer->OpenNamespace(longest, PlainSpec(kShard)).ok());
  const auto sibling = peer->OpenNamespace(longest, spec, {.sibling_on_mismatch = true});
  ASSERT_TRUE(sibling.ok()) << sibling.status();
  server->Kill();
  server = std::make_unique<PrivateServer>("160MiB", PrivateServer::Flags{.transfer = address});
  absl::Status status = absl::UnavailableError("");
  for (int attempt = 0; attempt < 1200 && absl::IsUnavailable(status); ++attempt) {
    status = peer->Get(*sibling, blocks.Items()).status();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace quarry::testing
