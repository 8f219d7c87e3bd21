// The promises that only show end to end: quarry::client against a real quarryd that is
// killed, stopped, flooded; gets cancelled by the thousand.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <random>
#include <thread>

#include "quarry/client.h"
#include "tests/integration/private_server.h"

namespace quarry::testing {
namespace {

constexpr size_t kBlock = 256 << 10;
constexpr size_t kPiece = 64 << 10;
constexpr uint32_t kHash = 32;

ModelSpec Spec() {
  ModelSpec spec;
  spec.model = "faults";
  spec.kv_dtype = "bfloat16";
  spec.hash_scheme = "test";
  spec.layers = 4;
  spec.groups = {{.tokens_per_block = 16, .shard_bytes = kBlock}};
  return spec;
}

std::string HashOf(uint64_t id) {
  std::string hash(kHash, 'h');
  std::memcpy(hash.data(), &id, sizeof id);
  return hash;
}

// What the block of that id holds, 8 bytes at a time.
void Fill(std::byte* block, uint64_t id) {
  for (size_t i = 0; i < kBlock / 8; ++i) {
    const uint64_t word = (id + 1) * 0x9E3779B97F4A7C15ull + i;
    std::memcpy(block + i * 8, &word, 8);
  }
}

bool Holds(const std::byte* block, uint64_t id) {
  std::vector<std::byte> expected(kBlock);
  Fill(expected.data(), id);
  return std::memcmp(block, expected.data(), kBlock) == 0;
}

class Memory {
 public:
  explicit Memory(size_t blocks) : bytes_(blocks * kBlock) {
    base_ = static_cast<std::byte*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Memory() { munmap(base_, bytes_); }
  std::byte* block(size_t i) { return base_ + i * kBlock; }
  std::byte* base() { return base_; }
  size_t bytes() const { return bytes_; }
  // From now on a write to it crashes the test.
  void Forbid() { ASSERT_EQ(mprotect(base_, bytes_, PROT_NONE), 0); }
  void Allow() { ASSERT_EQ(mprotect(base_, bytes_, PROT_READ | PROT_WRITE), 0); }

 private:
  size_t bytes_;
  std::byte* base_;
};

class ClientFaultsTest : public ::testing::Test {
 protected:
  void Connect(const std::string& address) {
    ClientOptions options;
    options.server = address;
    options.connect_timeout_ms = 20'000;
    auto client = Client::Create(options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = std::move(*client);
    auto ns = client_->OpenNamespace("faults", Spec());
    ASSERT_TRUE(ns.ok()) << ns.status();
    ns_ = *ns;
  }

  std::vector<Item> Items(Memory* memory, uint64_t first_id, size_t count) {
    hashes_.clear();
    for (size_t i = 0; i < count; ++i) hashes_ += HashOf(first_id + i);
    std::vector<Item> items(count);
    for (size_t i = 0; i < count; ++i) {
      items[i].hash = absl::string_view(hashes_).substr(i * kHash, kHash);
      items[i].depth = i;
      items[i].segments = {{memory->block(i), kPiece, kPiece, kBlock / kPiece}};
    }
    return items;
  }

  absl::Status PutBlocks(Memory* memory, uint64_t first_id, size_t count) {
    for (size_t i = 0; i < count; ++i) Fill(memory->block(i), first_id + i);
    auto put = client_->Put(ns_, Items(memory, first_id, count));
    if (!put.ok()) return put.status();
    for (const ItemResult& item : put->items) {
      if (item.outcome == PutOutcome::kRefused) return absl::AbortedError(Name(item.refusal));
    }
    return absl::OkStatus();
  }

  // The put may meet the moment before the client has noticed, or found the server again.
  void EventuallyPuts(Memory* memory, uint64_t first_id) {
    absl::Status status;
    for (int attempt = 0; attempt < 400; ++attempt) {
      status = PutBlocks(memory, first_id, 1);
      if (status.ok()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    FAIL() << status;
  }

  std::unique_ptr<Client> client_;
  Namespace ns_;
  std::string hashes_;
};

TEST_F(ClientFaultsTest, LeasedBlocksSurviveAFloodOfThreeTimesTheArena) {
  PrivateServer server("160MiB");
  Connect(server.address());
  constexpr size_t kLeased = 32;
  Memory memory(kLeased);
  const auto region = client_->RegisterMemory(memory.base(), memory.bytes());
  ASSERT_TRUE(region.ok());
  ASSERT_TRUE(PutBlocks(&memory, 0, kLeased).ok());
  Items(&memory, 0, kLeased);
  const std::string chain_hashes = hashes_;
  const Chain chain{.hashes = HashSpan(chain_hashes, kHash)};
  auto match = client_->Match(ns_, {&chain, 1}, {.lease_ms = 60'000});
  ASSERT_TRUE(match.ok()) << match.status();
  ASSERT_EQ(match->usable_tokens, kLeased * 16);
  const size_t flood = 3 * (160ull << 20) / kBlock;
  for (size_t id = 1000; id < 1000 + flood; id += kLeased) ASSERT_TRUE(PutBlocks(&memory, id, kLeased).ok());
  std::memset(memory.base(), 0, memory.bytes());
  auto got = client_->Get(ns_, Items(&memory, 0, kLeased), {.lease = match->lease});
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t i = 0; i < kLeased; ++i) {
    EXPECT_EQ(got->items[i].miss, MissCause::kNone) << i;
    EXPECT_TRUE(Holds(memory.block(i), i)) << i;
  }
  client_.reset();
  EXPECT_EQ(server.Stop(), 0);
}

TEST_F(ClientFaultsTest, AThousandCancelsEndOnceEachAndNothingIsWrittenLate) {
  PrivateServer server("256MiB");
  Connect(server.address());
  constexpr size_t kBlocks = 64;
  Memory memory(kBlocks);
  const auto region = client_->RegisterMemory(memory.base(), memory.bytes());
  ASSERT_TRUE(region.ok());
  ASSERT_TRUE(PutBlocks(&memory, 0, kBlocks).ok());
  CompletionQueue queue;
  std::mt19937_64 random(20261129);
  for (int round = 0; round < 1000; ++round) {
    auto operation = client_->GetAsync(ns_, Items(&memory, 0, kBlocks), {}, &queue, round);
    ASSERT_TRUE(operation.ok()) << operation.status();
    for (uint64_t spin = random() % 4000; spin > 0; --spin) std::atomic_signal_fence(std::memory_order_seq_cst);
    client_->Cancel(*operation);
    auto done = queue.Next(30'000);
    ASSERT_TRUE(done.has_value());
    ASSERT_EQ(done->kind, Completion::Kind::kDone);
    ASSERT_EQ(done->user_data, static_cast<uint64_t>(round));
    if (done->held) {
      auto released = queue.Next(30'000);
      ASSERT_TRUE(released.has_value());
      ASSERT_EQ(released->kind, Completion::Kind::kReleased);
    }
    if (round % 50 == 0) {
      memory.Forbid();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      memory.Allow();
    }
  }
  EXPECT_FALSE(queue.TryNext().has_value());
  EXPECT_EQ(client_->counters().operations, 0u);
  EXPECT_EQ(client_->counters().held, 0u);
  EXPECT_EQ(client_->counters().exposed_requests, 0u);
  client_.reset();
  EXPECT_EQ(server.Stop(), 0);
}

TEST_F(ClientFaultsTest, AStoppedServerCostsTheDeadlineAndWritesNothingLate) {
  PrivateServer server("256MiB");
  Connect(server.address());
  constexpr size_t kBlocks = 64;
  Memory memory(kBlocks);
  Memory other(1);
  const auto region = client_->RegisterMemory(memory.base(), memory.bytes());
  const auto other_region = client_->RegisterMemory(other.base(), other.bytes());
  ASSERT_TRUE(region.ok() && other_region.ok());
  ASSERT_TRUE(PutBlocks(&memory, 0, kBlocks).ok());
  CompletionQueue queue;
  server.Signal(SIGSTOP);
  ASSERT_TRUE(client_->GetAsync(ns_, Items(&memory, 0, kBlocks), {.deadline_ms = 300}, &queue, 0).ok());
  auto done = queue.Next(30'000);
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(absl::IsDeadlineExceeded(done->status)) << done->status;
  EXPECT_FALSE(done->held);
  memory.Forbid();
  server.Signal(SIGCONT);  // the server now serves the get that nobody waits for
  EventuallyPuts(&other, 5000);
  memory.Allow();
  auto got = client_->Get(ns_, Items(&memory, 0, kBlocks));
  ASSERT_TRUE(got.ok()) << got.status();
  for (size_t i = 0; i < kBlocks; ++i) EXPECT_TRUE(Holds(memory.block(i), i)) << i;
  client_.reset();
  EXPECT_EQ(server.Stop(), 0);
}

TEST_F(ClientFaultsTest, AKilledServerEndsTheGetAndIsFoundAgainOnItsPort) {
  auto server = std::make_unique<PrivateServer>("256MiB");
  const std::string address = server->address();
  Connect(address);
  constexpr size_t kBlocks = 64;
  Memory memory(kBlocks);
  const auto region = client_->RegisterMemory(memory.base(), memory.bytes());
  ASSERT_TRUE(region.ok());
  ASSERT_TRUE(PutBlocks(&memory, 0, kBlocks).ok());
  CompletionQueue queue;
  server->Signal(SIGSTOP);  // so that the get is under way when the server dies
  ASSERT_TRUE(client_->GetAsync(ns_, Items(&memory, 0, kBlocks), {}, &queue, 0).ok());
  server->Kill();
  auto done = queue.Next(30'000);
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(absl::IsUnavailable(done->status)) << done->status;
  EXPECT_FALSE(done->held);

  server = std::make_unique<PrivateServer>("256MiB", address);
  EventuallyPuts(&memory, 7000);
  std::memset(memory.base(), 0, memory.bytes());
  auto got = client_->Get(ns_, Items(&memory, 7000, 1));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(Holds(memory.block(0), 7000));
  auto gone = client_->Get(ns_, Items(&memory, 0, 1));
  ASSERT_TRUE(gone.ok()) << gone.status();
  EXPECT_EQ(gone->items[0].miss, MissCause::kNeverStored);
  client_.reset();
  EXPECT_EQ(server->Stop(), 0);
}

}  // namespace
}  // namespace quarry::testing
