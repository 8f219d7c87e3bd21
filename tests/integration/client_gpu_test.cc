// GPU memory under the client library: real servers, and a FAKE CUDA driver, whose device memory
// nobody can touch but through it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/fakes/fake_cuda/fake_cuda.h"
#include "tests/integration/gpu_batch.h"
#include "tests/integration/peer.h"
#include "tests/integration/private_server.h"
#include "tests/integration/temporary_dir.h"

namespace quarry::testing {
namespace {

namespace fake = fakes::cuda;
using ::testing::HasSubstr;

constexpr size_t kMiB = 1 << 20;

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

class ClientGpuTest : public ::testing::Test {
 protected:
  void SetUp() override { fake::Reset(); }
  void TearDown() override {
    EXPECT_EQ(fake::Faults(), "");
    fake::Reset();
  }
  static PrivateServer::Flags Flags(const std::string& socket) {
    return {.transfer = "127.0.0.1:0", .socket = socket, .more = {}};
  }
  static ClientOptions Options(const std::string& transport, uint64_t staging_bytes = 8 * kMiB) {
    ClientOptions options;
    options.transport = transport;
    options.gpu_staging_bytes = staging_bytes;
    return options;
  }

  const TemporaryDir dir_;
  PrivateServer server_{"512MiB", Flags(dir_.path() + "/quarryd.sock")};
};

struct GpuShape {
  const char* name;
  size_t items;
  GpuLayout layout;
};

constexpr GpuShape kGpuShapes[] = {
    {"Llama8B", 6, {32 * (64 << 10), 64 << 10, 0, 0}}, {"TensorParallel8", 12, {80 * (8 << 10), 8 << 10, 0, 0}},
    {"HalfMla", 3, {61 * (36 << 10), 36 << 10, 0, 0}}, {"Odd", 20, {100'001, 3'333, 7, 3}},
    {"Whole", 4, {2 * kMiB, 2 * kMiB, 64, 0}},
};

class ClientGpuLayoutTest : public ClientGpuTest,
                            public ::testing::WithParamInterface<std::tuple<GpuShape, std::string>> {};

TEST_P(ClientGpuLayoutTest, EveryByteGoesThereAndBackAndNoOther) {
  const auto& [shape, transport] = GetParam();
  Peer peer(server_.address(), PlainSpec(shape.layout.item_bytes), Options(transport));
  GpuBatch blocks(peer, 0, 1, shape.items, shape.layout);
  EXPECT_TRUE(blocks.Put());
  EXPECT_TRUE(blocks.ComesBack());
  GpuStream stream;
  EXPECT_TRUE(blocks.ComesBack({.gpu_stream = stream.get(), .gpu_event = stream.event()}));
  stream.Synchronize();
  EXPECT_TRUE(stream.EventIsReached());
  const std::string bytes = "quarry_transfer_bytes_total{op=\"get\",tier=\"dram\",transport=\"" + transport + "\"}";
  EXPECT_EQ(server_.Metric(bytes), 2.0 * shape.items * shape.layout.item_bytes);
  EXPECT_TRUE(BecomesIdle(peer));
}

INSTANTIATE_TEST_SUITE_P(Layouts, ClientGpuLayoutTest,
                         ::testing::Combine(::testing::ValuesIn(kGpuShapes), ::testing::Values("tcp", "shm")),
                         [](const auto& suite) {
                           return std::string(std::get<0>(suite.param).name) + "Over" + std::get<1>(suite.param);
                         });

TEST_F(ClientGpuTest, NearlyAThousandPiecesAreOneLaunch) {
  Peer peer(server_.address(), PlainSpec(80 * (8 << 10)), Options("shm", 64 * kMiB));
  GpuBatch blocks(peer, 0, 1, 12, {80 * (8 << 10), 8 << 10, 0, 0});
  const int before = fake::Calls("cuLaunchKernel");
  EXPECT_TRUE(blocks.Put());
  EXPECT_EQ(fake::Calls("cuLaunchKernel") - before, 1);
  EXPECT_TRUE(blocks.ComesBack());
  // As they come: at most one an item.
  EXPECT_LE(fake::Calls("cuLaunchKernel") - before, 1 + 12);
  EXPECT_EQ(fake::Calls("cuMemcpyBatchAsync"), 0);
}

TEST_F(ClientGpuTest, LongPiecesGoByBatchesOfCopies) {
  Peer peer(server_.address(), PlainSpec(2 * kMiB), Options("shm", 64 * kMiB));
  GpuBatch blocks(peer, 0, 1, 4, {2 * kMiB, 512 << 10, 64, 0});
  EXPECT_TRUE(blocks.Put());
  EXPECT_EQ(fake::Calls("cuMemcpyBatchAsync"), 1);
  EXPECT_TRUE(blocks.ComesBack());
  EXPECT_EQ(fake::Calls("cuLaunchKernel"), 0);
}

TEST_F(ClientGpuTest, ARingSmallerThanTheOperationIsUsedAgainAndAgain) {
  Peer peer(server_.address(), PlainSpec(300'000), Options("auto", kMiB));
  GpuBatch blocks(peer, 0, 1, 50, {300'000, 30'000, 8, 0});
  EXPECT_TRUE(blocks.Put());
  EXPECT_TRUE(blocks.ComesBack());
  EXPECT_TRUE(blocks.ComesBack({.window_bytes = 700'000}));
  GpuStream stream;
  EXPECT_TRUE(blocks.ComesBack({.gpu_stream = stream.get()}));
  EXPECT_TRUE(BecomesIdle(peer));
}

TEST_F(ClientGpuTest, AnItemAsLargeAsTheRingIsTheLargest) {
  Peer peer(server_.address(), PlainSpec(kMiB), Options("auto", kMiB));
  GpuBatch blocks(peer, 0, 1, 3, {kMiB, 64 << 10, 0, 0});
  EXPECT_TRUE(blocks.Put());
  EXPECT_TRUE(blocks.ComesBack());
  PrivateServer other_server("256MiB");
  Peer other(other_server.address(), PlainSpec(kMiB + 1), Options("auto", kMiB));
  GpuBatch larger(other, 0, 100, 1, {kMiB + 1, 64 << 10, 0, 0});
  const auto got = other->Get(other.ns(), larger.Items());
  ASSERT_TRUE(absl::IsInvalidArgument(got.status()));
  EXPECT_EQ(TextOf(got.status()),
            "items[0].segments: 1048577 bytes of GPU memory; at most 1048576 (gpu_staging_bytes)");
}

TEST_F(ClientGpuTest, MissesAndHitsEndOneByOneAndOnlyHitsAreWritten) {
  constexpr GpuLayout kLayout{100'000, 10'000, 0, 0};
  Peer peer(server_.address(), PlainSpec(100'000), Options("auto"));
  GpuBatch stored(peer, 0, 1, 5, kLayout);
  ASSERT_TRUE(stored.Put());
  GpuBatch blocks(peer, 0, 1, 8, kLayout);
  CompletionQueue queue;
  ASSERT_TRUE(peer->GetAsync(peer.ns(), blocks.Items(), {.item_completions = true}, &queue, 77).ok());
  const Ended ended = WaitForEnd(&queue);
  EXPECT_TRUE(ended.done.status.ok()) << ended.done.status;
  EXPECT_EQ(ended.done.user_data, 77u);
  EXPECT_EQ(ended.items.size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(ended.done.transfer->items[i].miss, i < 5 ? MissCause::kNone : MissCause::kNeverStored) << i;
  }
  EXPECT_EQ(ended.done.transfer->bytes, 500'000u);
  EXPECT_TRUE(blocks.Holds(0, 5));
  EXPECT_TRUE(BecomesIdle(peer));
}

TEST_F(ClientGpuTest, ARangeOfABlock) {
  constexpr size_t kBytes = 100'000;
  Peer peer(server_.address(), PlainSpec(kBytes), Options("auto"));
  GpuBatch blocks(peer, 0, 1, 1, {kBytes, kBytes, 0, 0});
  ASSERT_TRUE(blocks.Put());
  blocks.Clear();
  std::vector<Item> items = blocks.Items();
  items[0].offset = 12'345;
  items[0].bytes = 20'000;
  items[0].segments = {{blocks.base() + 12'345, 20'000, 0, 1}};
  const auto got = peer->Get(peer.ns(), items);
  ASSERT_TRUE(got.ok()) << got.status();
  Bytes expected = blocks.Image(0, 0);
  const Bytes full = blocks.Image(0, 1);
  std::copy_n(full.begin() + 12'345, 20'000, expected.begin() + 12'345);
  EXPECT_TRUE(blocks.Read() == expected);
}

// ---------------------------------------------------------------- what kind of memory it is

TEST_F(ClientGpuTest, PageLockedAndManagedMemoryAreHostMemory) {
  constexpr size_t kBytes = 100'000;
  Peer peer(server_.address(), PlainSpec(kBytes), Options("tcp"));
  const GpuScope scope(0);
  CUdeviceptr managed = 0;
  ASSERT_EQ(cuMemAllocManaged(&managed, kBytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  void* locked = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(cuMemHostRegister(locked, kBytes, CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
  for (std::byte* base : {reinterpret_cast<std::byte*>(managed), static_cast<std::byte*>(locked)}) {
    const auto region = peer->RegisterMemory(base, kBytes);
    ASSERT_TRUE(region.ok()) << region.status();
    std::memset(base, 0x5c, kBytes);
    const std::string hash = HashOf(reinterpret_cast<uintptr_t>(base));
    Item item;
    item.hash = hash;
    item.segments = {{base, kBytes, 0, 1}};
    ASSERT_TRUE(peer->Put(peer.ns(), {item}).ok());
    std::memset(base, 0, kBytes);
    ASSERT_TRUE(peer->Get(peer.ns(), {item}).ok());
    EXPECT_EQ(std::memcmp(base, std::string(kBytes, 0x5c).data(), kBytes), 0);
  }
  EXPECT_EQ(fake::Calls("cuLaunchKernel"), 0);
  EXPECT_EQ(fake::Calls("cuModuleLoadData"), 0);  // no ring, no kernel
  cuMemHostUnregister(locked);
  munmap(locked, kBytes);
  cuMemFree(managed);
}

TEST_F(ClientGpuTest, RangesThatAreNotAllOneGpusAreRefused) {
  Peer peer(server_.address(), PlainSpec(kMiB), Options("auto"));
  GpuBatch blocks(peer, 1, 1, 1, {kMiB, kMiB, 0, 0});
  blocks.region() = MemoryRegion();
  const auto beyond = peer->RegisterMemory(blocks.base(), kMiB + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(beyond.status())) << beyond.status();
  EXPECT_TRUE(absl::IsInvalidArgument(peer->RegisterMemory(blocks.base() - 1, 100).status()));
  EXPECT_TRUE(peer->RegisterMemory(blocks.base(), kMiB).ok());
  const auto twice = peer->RegisterMemory(blocks.base(), kMiB);
  EXPECT_TRUE(twice.ok()) << twice.status();  // the first went at once
  EXPECT_THAT(TextOf(peer->RegisterMemory(blocks.base() + 5, 10).status()), HasSubstr("overlaps"));
}

TEST_F(ClientGpuTest, ARangeWithAHoleInItIsRefused) {
  constexpr size_t kBytes = 100'000;  // no whole pages: between any two of these is what belongs to neither
  Peer peer(server_.address(), PlainSpec(kBytes), Options("auto"));
  GpuBatch one(peer, 0, 1, 1, {kBytes, kBytes, 0, 0});
  GpuBatch other(peer, 0, 2, 1, {kBytes, kBytes, 0, 0});
  one.region() = MemoryRegion();
  other.region() = MemoryRegion();
  std::byte* const low = std::min(one.base(), other.base());
  std::byte* const high = std::max(one.base(), other.base());
  const auto region = peer->RegisterMemory(low, static_cast<size_t>(high - low) + kBytes);
  ASSERT_TRUE(absl::IsInvalidArgument(region.status())) << region.status();
  EXPECT_THAT(TextOf(region.status()), HasSubstr("but only 100000 from base on are allocated in the memory of GPU 0"));
}

TEST_F(ClientGpuTest, MemoryThatIsMappedInParts) {
  Peer peer(server_.address(), PlainSpec(3 * kMiB), Options("auto"));
  GpuBatch blocks(peer, 1, 1, 2, {3 * kMiB, 64 << 10, 0, 0}, /*in_parts=*/true);
  ASSERT_GT(blocks.bytes(), 2 * fake::kPartBytes);
  EXPECT_TRUE(blocks.Put());
  EXPECT_TRUE(blocks.ComesBack());
}

TEST_F(ClientGpuTest, OperationsOfOneClientOnTwoGpusAtOnce) {
  constexpr GpuLayout kLayout{200'000, 20'000, 0, 0};
  Peer peer(server_.address(), PlainSpec(200'000), Options("auto", kMiB));
  GpuBatch one(peer, 0, 1, 30, kLayout);
  GpuBatch other(peer, 1, 1000, 30, kLayout);
  ASSERT_TRUE(one.Put());
  ASSERT_TRUE(other.Put());
  one.Clear();
  other.Clear();
  CompletionQueue queues[2];
  ASSERT_TRUE(peer->GetAsync(peer.ns(), one.Items(), {}, &queues[0], 0).ok());
  ASSERT_TRUE(peer->GetAsync(peer.ns(), other.Items(), {}, &queues[1], 0).ok());
  for (CompletionQueue& queue : queues) EXPECT_TRUE(WaitForEnd(&queue).done.status.ok());
  EXPECT_TRUE(one.HoldsAll());
  EXPECT_TRUE(other.HoldsAll());
}

TEST_F(ClientGpuTest, ItemsOfSeveralKindsInOneOperationAreRefused) {
  constexpr GpuLayout kLayout{100'000, 10'000, 0, 0};
  Peer peer(server_.address(), PlainSpec(100'000), Options("auto"));
  GpuBatch one(peer, 0, 1, 2, kLayout);
  GpuBatch other(peer, 1, 1000, 2, kLayout);
  Batch host(peer, 2000, 2);
  for (const Item& odd : {other.Items()[0], host.ItemAt(0)}) {
    std::vector<Item> items = one.Items();
    items.push_back(odd);
    for (const absl::Status& status : {peer->Get(peer.ns(), items).status(), peer->Put(peer.ns(), items).status()}) {
      ASSERT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(TextOf(status), HasSubstr("items[2].segments[0]: lies elsewhere than memory of GPU 0"));
    }
  }
  one.region() = MemoryRegion();
  EXPECT_THAT(TextOf(peer->Get(peer.ns(), one.Items()).status()), HasSubstr("not inside one registered range"));
}

TEST_F(ClientGpuTest, WhoOptsOutNeedsNoGpu) {
  Peer peer(server_.address(), PlainSpec(100'000), Options("auto"));
  GpuBatch blocks(peer, 0, 1, 2, {100'000, 10'000, 0, 0});
  GetOptions options;
  options.control.no_load = true;
  const auto got = peer->Get(peer.ns(), blocks.Items(), options);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->items[0].miss, MissCause::kOptedOut);
  EXPECT_TRUE(blocks.Untouched());
}

// ---------------------------------------------------------------- fetches

class ClientGpuFetchTest : public ClientGpuTest {
 protected:
  static constexpr size_t kStored = 6;
  static constexpr size_t kAsked = 9;
  static constexpr size_t kBytes = 100'000;

  void SetUp() override {
    ClientGpuTest::SetUp();
    Batch stored(peer_, 1, kStored);
    ASSERT_TRUE(stored.Put().ok());
  }
  // The same fetch into host and into GPU memory says and does the same.
  void ExpectAsOnTheHost(const FetchOptions& options, size_t moved) {
    Batch host(peer_, 1, kAsked);
    GpuBatch gpu(peer_, 0, 1, kAsked, {kBytes, 10'000, 0, 0});
    host.buffers().Clear();
    const Chain chain = gpu.AsChain();
    const auto expected = peer_->FetchPrefix(peer_.ns(), {&chain, 1}, {host.Destinations()}, options);
    const auto fetched = peer_->FetchPrefix(peer_.ns(), {&chain, 1}, {gpu.Destinations()}, options);
    ASSERT_TRUE(expected.ok() && fetched.ok()) << expected.status() << fetched.status();
    EXPECT_EQ(fetched->fetched_blocks, moved);
    EXPECT_EQ(fetched->fetched_blocks, expected->fetched_blocks);
    EXPECT_EQ(fetched->match.usable_tokens, expected->match.usable_tokens);
    EXPECT_EQ(fetched->match.first_miss, expected->match.first_miss);
    EXPECT_EQ(fetched->match.first_miss_block, expected->match.first_miss_block);
    EXPECT_EQ(fetched->match.chains[0].states, expected->match.chains[0].states);
    EXPECT_EQ(fetched->match.chains[0].first_usable, expected->match.chains[0].first_usable);
    EXPECT_EQ(fetched->match.chains[0].end_usable, expected->match.chains[0].end_usable);
    EXPECT_EQ(static_cast<bool>(fetched->match.lease), static_cast<bool>(expected->match.lease));
    EXPECT_EQ(fetched->transfer.bytes, expected->transfer.bytes);
    for (size_t i = 0; i < kAsked; ++i) {
      EXPECT_EQ(fetched->transfer.items[i].status, expected->transfer.items[i].status) << i;
      EXPECT_EQ(fetched->transfer.items[i].miss, expected->transfer.items[i].miss) << i;
    }
    EXPECT_TRUE(gpu.Holds(0, moved));
    for (const auto* result : {&*expected, &*fetched}) {
      if (!result->match.lease) continue;
      EXPECT_TRUE(peer_->ReleaseLease(result->match.lease).ok());
    }
  }

  Peer peer_{server_.address(), PlainSpec(kBytes), Options("auto", kMiB)};
};

TEST_F(ClientGpuFetchTest, SaysAndDoesWhatOneIntoHostMemoryDoes) {
  ExpectAsOnTheHost({}, kStored);
  ExpectAsOnTheHost({.max_blocks = 4}, 4);
  ExpectAsOnTheHost({.min_blocks = kStored}, kStored);
  ExpectAsOnTheHost({.min_blocks = kStored + 1}, 0);
  ExpectAsOnTheHost({.max_blocks = 3, .min_blocks = 4}, 0);
  FetchOptions options;
  options.match.lease_ms = 0;
  ExpectAsOnTheHost(options, kStored);
  options.match.local_tokens = 2 * 16;
  GpuBatch gpu(peer_, 0, 1, kAsked, {kBytes, 10'000, 0, 0});
  const Chain chain = gpu.AsChain();
  const auto fetched = peer_->FetchPrefix(peer_.ns(), {&chain, 1}, {gpu.Destinations()}, options);
  ASSERT_TRUE(fetched.ok());
  EXPECT_TRUE(gpu.Holds(2, kStored));
  EXPECT_TRUE(BecomesIdle(peer_));
  EXPECT_TRUE(server_.BecomesIdle(1));  // no lease stays
}

}  // namespace
}  // namespace quarry::testing
