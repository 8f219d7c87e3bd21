// A client connected to a fake node, with an open namespace and registered memory.
#ifndef QUARRY_TESTS_UNIT_CLIENT_CLIENT_FIXTURE_H_
#define QUARRY_TESTS_UNIT_CLIENT_CLIENT_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "common/checksum.h"
#include "quarry/client.h"
#include "tests/fakes/fake_node.h"

namespace quarry {

inline constexpr size_t kTestShardBytes = 100'000;  // not a multiple of a chunk
inline constexpr uint32_t kTestHandle = 7;
inline constexpr uint32_t kLongMs = 60'000;  // a deadline that no test reaches
inline const std::string& TestNamespaceId() {
  static const auto* id = new std::string(32, 'n');
  return *id;
}

inline ModelSpec TestSpec() {
  ModelSpec spec;
  spec.engine = "test";
  spec.layout = "flat";
  spec.model = "model";
  spec.kv_dtype = "bfloat16";
  spec.hash_scheme = "test";
  spec.hash_bytes = 16;
  spec.layers = 2;
  GroupSpec group;
  group.tokens_per_block = 16;
  group.shards = 2;
  group.shard_bytes = kTestShardBytes;
  spec.groups = {group};
  return spec;
}

inline std::string TestHash(int n) {
  std::string hash = std::to_string(n);
  hash.resize(16, '#');
  return hash;
}

inline std::vector<std::byte> TestPayload(int n, size_t bytes = kTestShardBytes) {
  std::vector<std::byte> payload(bytes);
  for (size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>(i * 31 + i / 251 + static_cast<size_t>(n));
  return payload;
}

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

inline uint64_t TestSeed(int n, uint32_t shard = 0) { return IdentitySeed(TestNamespaceId(), 0, shard, TestHash(n)); }

class ClientFixture : public testing::Test {
 protected:
  static constexpr std::byte kGuard{0xa5};

  ClientFixture() : memory_(32 * kTestShardBytes, kGuard) {}

  ClientOptions Options() const {
    ClientOptions options;
    options.server = node_.address();
    options.backoff_min_ms = 1;
    options.backoff_max_ms = 10;
    return options;
  }

  // Client::Create needs somebody who answers meanwhile.
  void Connect(const ClientOptions& options, const wire::Limits& limits = {}) {
    auto created = std::async(std::launch::async, [&] { return Client::Create(options); });
    session_ = node_.AcceptSession(limits);
    auto client = created.get();
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = std::move(*client);
    auto opened = std::async(std::launch::async, [this] { return client_->OpenNamespace("ns", TestSpec()); });
    fakes::FakeNode::AnswerOpenNamespace(&session_.control, kTestHandle, TestNamespaceId());
    auto ns = opened.get();
    ASSERT_TRUE(ns.ok()) << ns.status();
    ns_ = *ns;
    auto region = client_->RegisterMemory(memory_.data(), memory_.size());
    ASSERT_TRUE(region.ok()) << region.status();
    region_ = std::move(*region);
  }
  void Connect() { Connect(Options()); }

  // The n-th place in memory for a shard, in two strided pieces and the rest.
  SegmentList Place(size_t n) {
    std::byte* base = memory_.data() + n * kTestShardBytes;
    constexpr size_t kPiece = 30'000;
    return {{base, kPiece, kPiece, 2}, {base + 2 * kPiece, kTestShardBytes - 2 * kPiece, 0, 1}};
  }
  std::vector<std::byte> BytesAt(size_t n) const {
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(n * kTestShardBytes);
    return {begin, begin + kTestShardBytes};
  }
  bool Untouched(size_t n) const { return BytesAt(n) == std::vector<std::byte>(kTestShardBytes, kGuard); }
  void Fill(size_t n, const std::vector<std::byte>& bytes) {
    std::copy(bytes.begin(), bytes.end(), memory_.begin() + static_cast<std::ptrdiff_t>(n * kTestShardBytes));
  }

  // Items for the blocks, each in the place of its index. Keeps the hashes.
  std::vector<Item> Items(const std::vector<int>& blocks) {
    std::vector<Item> items;
    hashes_.clear();
    for (const int block : blocks) hashes_.push_back(TestHash(block));
    for (size_t i = 0; i < blocks.size(); ++i) {
      Item& item = items.emplace_back();
      item.hash = hashes_[i];
      item.segments = Place(i);
    }
    return items;
  }
  Chain TestChain(int blocks) {
    packed_.clear();
    for (int i = 0; i < blocks; ++i) packed_ += TestHash(i);
    Chain chain;
    chain.hashes = HashSpan(packed_, 16);
    return chain;
  }

  fakes::FakeItem Block(uint64_t request, uint32_t item, int block) {
    return {request, item, TestSeed(block), TestPayload(block)};
  }

  // The next completion; none within a minute fails the test.
  Completion Next() {
    auto completion = queue_.Next(kLongMs);
    if (completion.has_value()) return *completion;
    ADD_FAILURE() << "no completion";
    return {};
  }
  void ExpectNothingPending() {
    EXPECT_FALSE(queue_.TryNext().has_value());
    const ClientCounters counters = client_->counters();
    EXPECT_EQ(counters.operations, 0u);
    EXPECT_EQ(counters.held, 0u);
    EXPECT_EQ(counters.exposed_requests, 0u);
  }

  fakes::FakeNode node_;
  fakes::FakeSession session_;
  std::vector<std::byte> memory_;
  std::vector<std::string> hashes_;
  std::string packed_;
  CompletionQueue queue_;
  std::unique_ptr<Client> client_;
  Namespace ns_;
  MemoryRegion region_;
};

}  // namespace quarry

#endif  // QUARRY_TESTS_UNIT_CLIENT_CLIENT_FIXTURE_H_
