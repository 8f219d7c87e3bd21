// What is refused before anything is sent, and how requests are encoded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/backoff.h"
#include "client/chains.h"
#include "client/items.h"
#include "client/memory_registry.h"
#include "client/options.h"
#include "tests/unit/client/client_fixture.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string Complaint(const absl::Status& status) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(OptionsTest, DefaultsAreValid) { EXPECT_TRUE(Validate(ClientOptions()).ok()); }

TEST(OptionsTest, ABadFieldIsNamedWithItsBound) {
  const auto with = [](auto change) {
    ClientOptions options;
    change(options);
    return Complaint(Validate(options));
  };
  EXPECT_THAT(with([](auto& o) { o.server = "nowhere"; }), StartsWith("server"));
  EXPECT_THAT(with([](auto& o) { o.transport = "pigeon"; }), HasSubstr("pigeon"));
  EXPECT_THAT(with([](auto& o) { o.data_streams = 0; }), StartsWith("data_streams: 1 to 16"));
  EXPECT_THAT(with([](auto& o) { o.data_streams = 17; }), StartsWith("data_streams: 1 to 16"));
  EXPECT_THAT(with([](auto& o) { o.io_threads = 17; }), StartsWith("io_threads: 1 to 16"));
  EXPECT_THAT(with([](auto& o) { o.connect_timeout_ms = 0; }), StartsWith("connect_timeout_ms"));
  EXPECT_THAT(with([](auto& o) { o.default_deadline_ms = 0; }), StartsWith("default_deadline_ms"));
  EXPECT_THAT(with([](auto& o) { o.backoff_min_ms = 0; }), StartsWith("backoff_min_ms"));
  EXPECT_THAT(with([](auto& o) { o.backoff_max_ms = o.backoff_min_ms - 1; }), StartsWith("backoff_max_ms: 20"));
  EXPECT_EQ(with([](auto& o) { o.transport = "rdma"; }), "transport: 'auto', 'tcp', 'shm' or 'ucx', got 'rdma'");
  EXPECT_EQ(with([](auto& o) { o.ucx_rma = "on"; }), "ucx_rma: 'auto', 'never' or 'always', got 'on'");
  EXPECT_THAT(with([](auto& o) { o.gpu_staging_bytes = 0xfffff; }), StartsWith("gpu_staging_bytes: 1048576 to"));
  EXPECT_THAT(with([](auto& o) { o.client_name.assign(257, 'x'); }), StartsWith("client_name"));
}

TEST(BackoffTest, WaitsGrowToTheMaximumAndStartOver) {
  Backoff longest(20, 100, [] { return 0.999999; });
  EXPECT_EQ(longest.NextMs(), 40u);
  EXPECT_EQ(longest.NextMs(), 80u);
  EXPECT_EQ(longest.NextMs(), 100u);
  EXPECT_EQ(longest.NextMs(), 100u);
  longest.Reset();
  EXPECT_EQ(longest.NextMs(), 40u);
  Backoff shortest(20, 100, [] { return 0.0; });
  EXPECT_EQ(shortest.NextMs(), 20u);
  EXPECT_EQ(shortest.NextMs(), 20u);
}

TEST(BackoffTest, TheKernelsRandomnessIsAFraction) {
  for (int i = 0; i < 1'000; ++i) {
    const double fraction = SecureRandomFraction();
    ASSERT_GE(fraction, 0.0);
    ASSERT_LT(fraction, 1.0);
  }
}

TEST(MemoryRegistryTest, RangesAreSortedAndDisjoint) {
  std::vector<std::byte> memory(100);
  MemoryRegistry registry;
  std::byte* base = memory.data();
  EXPECT_TRUE(registry.Add({base + 50, 10}).ok());
  EXPECT_TRUE(registry.Add({base, 10}).ok());
  EXPECT_TRUE(registry.Add({base + 10, 40}).ok());  // between the two, touching both
  EXPECT_THAT(Complaint(registry.Add({base + 59, 1})), HasSubstr("overlaps"));
  EXPECT_THAT(Complaint(registry.Add({base + 5, 100})), HasSubstr("overlaps"));
  EXPECT_THAT(Complaint(registry.Add({base, 0})), StartsWith("bytes"));
  EXPECT_THAT(Complaint(registry.Add({nullptr, 1})), StartsWith("base"));
  EXPECT_THAT(Complaint(registry.Add({base, SIZE_MAX})), HasSubstr("address space"));
  const auto before = registry.Snapshot();
  registry.Remove({base + 10, 40});
  EXPECT_EQ(before->size(), 3u);
  ASSERT_EQ(registry.Snapshot()->size(), 2u);
  EXPECT_EQ((*registry.Snapshot())[0].base, base);
  EXPECT_TRUE(registry.Add({base + 20, 5}).ok());
}

TEST(MemoryRegistryTest, TheNumberOfRangesIsBounded) {
  std::vector<std::byte> memory(kMaxRegisteredRanges + 1);
  MemoryRegistry registry;
  for (size_t i = 0; i < kMaxRegisteredRanges; ++i) ASSERT_TRUE(registry.Add({memory.data() + i, 1}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(registry.Add({memory.data() + kMaxRegisteredRanges, 1})));
}

TEST(LeaseTest, SerializedLeasesComeBack) {
  const std::string bytes = std::string("\1\x10\x27\0\0", 5) + "0123456789abcdef";
  const auto lease = Lease::Attach(bytes);
  ASSERT_TRUE(lease.ok());
  EXPECT_TRUE(*lease);
  EXPECT_EQ(lease->granted_ms(), 10'000u);
  EXPECT_EQ(lease->Serialize(), bytes);
  EXPECT_FALSE(Lease());
}

TEST(LeaseTest, OtherBytesAreRefused) {
  const std::string good = std::string("\1\x10\x27\0\0", 5) + "0123456789abcdef";
  Complaint(Lease::Attach("").status());
  Complaint(Lease::Attach(Lease().Serialize()).status());
  Complaint(Lease::Attach(good.substr(0, 20)).status());
  Complaint(Lease::Attach(good + "x").status());
  std::string version = good;
  version[0] = 2;
  Complaint(Lease::Attach(version).status());
}

class ItemsTest : public testing::Test {
 protected:
  ItemsTest() : memory_(8 * kTestShardBytes), spec_(MakeSpec()), registered_{{memory_.data(), memory_.size()}} {}

  static ModelSpec MakeSpec() {
    ModelSpec spec = TestSpec();
    GroupSpec sized;  // group 1: sizes up to a maximum
    sized.kind = GroupKind::kState;
    sized.shard_bytes = 1'000;
    sized.exact_bytes = false;
    spec.groups.push_back(sized);
    return spec;
  }
  Item MakeItem(int n, uint32_t group = 0, size_t bytes = kTestShardBytes) {
    Item item;
    item.group = group;
    hashes_.push_back(std::make_unique<std::string>(TestHash(n)));
    item.hash = *hashes_.back();
    item.segments = {{memory_.data() + used_, bytes, 0, 1}};
    used_ += bytes;
    return item;
  }
  absl::Status CheckGet(const std::vector<Item>& items) { return CheckGetItems({ns_, limits_, registered_}, items); }
  absl::Status CheckPut(const std::vector<Item>& items) { return CheckPutItems({ns_, limits_, registered_}, items); }
  std::string GetWith(const std::function<void(Item&)>& change) {
    used_ = 0;
    std::vector<Item> items{MakeItem(0), MakeItem(1)};
    change(items[1]);
    return Complaint(CheckGet(items));
  }

  std::vector<std::byte> memory_;
  ModelSpec spec_;
  Namespace::State ns_{1, "ns", TestNamespaceId(), MakeSpec(), {}, 0};
  wire::Limits limits_;
  std::vector<MemoryRange> registered_;
  std::vector<std::unique_ptr<std::string>> hashes_;
  size_t used_ = 0;
};

TEST_F(ItemsTest, ABadItemIsNamedWithFieldAndBound) {
  EXPECT_THAT(Complaint(CheckGet({})), StartsWith("items: 1 to 65536"));
  EXPECT_THAT(GetWith([](Item& i) { i.group = 2; }), StartsWith("items[1].group: 0 to 1"));
  EXPECT_THAT(GetWith([](Item& i) { i.shard = 2; }), StartsWith("items[1].shard: 0 to 1"));
  for (const size_t length : {0, 15, 17, 65}) {
    const std::string hash(length, 'h');
    EXPECT_THAT(GetWith([&](Item& i) { i.hash = hash; }), StartsWith("items[1].hash: 16 bytes"));
  }
  EXPECT_THAT(GetWith([](Item& i) { i.offset = kTestShardBytes; }), StartsWith("items[1].offset"));
  EXPECT_THAT(GetWith([](Item& i) { i.offset = 1, i.bytes = kTestShardBytes; }), StartsWith("items[1].bytes"));
  EXPECT_THAT(GetWith([](Item& i) { i.bytes = 10; }), StartsWith("items[1].segments"));
  EXPECT_THAT(GetWith([](Item& i) { i.segments.clear(); }), StartsWith("items[1].segments"));
  EXPECT_THAT(GetWith([](Item& i) { i.segments[0].length = 0; }), StartsWith("items[1].segments[0].length"));
  std::vector<std::byte> elsewhere(kTestShardBytes);
  EXPECT_THAT(GetWith([&](Item& i) { i.segments[0].base = elsewhere.data(); }), HasSubstr("registered"));
}

TEST_F(ItemsTest, TheNumberOfItemsIsBounded) {
  limits_.max_items = 1;
  EXPECT_THAT(Complaint(CheckGet({MakeItem(0), MakeItem(1)})), HasSubstr("max_items"));
}

TEST_F(ItemsTest, DestinationsOfTwoItemsMustNotShareAByte) {
  std::vector<Item> items{MakeItem(0), MakeItem(1)};
  EXPECT_TRUE(CheckGet(items).ok());
  items[1].segments[0].base -= 1;
  EXPECT_THAT(Complaint(CheckGet(items)), HasSubstr("items[1]: shares bytes with items[0]"));
  EXPECT_TRUE(CheckPut(items).ok());  // sources may
}

TEST_F(ItemsTest, InterleavedDestinationsAreFine) {
  std::vector<Item> items{MakeItem(0), MakeItem(1)};
  constexpr size_t kPiece = kTestShardBytes / 10;
  std::byte* base = memory_.data();
  items[0].segments = {{base, kPiece, 2 * kPiece, 10}};
  items[1].segments = {{base + kPiece, kPiece, 2 * kPiece, 10}};
  EXPECT_TRUE(CheckGet(items).ok());
  items[1].segments[0].base -= 1;
  EXPECT_THAT(Complaint(CheckGet(items)), HasSubstr("shares bytes"));
}

TEST_F(ItemsTest, AMaximumSizeLeavesTheSizeToTheSegments) {
  EXPECT_TRUE(CheckGet({MakeItem(0, 1, 10)}).ok());
  EXPECT_TRUE(CheckGet({MakeItem(0, 1, 1'000)}).ok());
  EXPECT_THAT(Complaint(CheckGet({MakeItem(0, 1, 1'001)})), HasSubstr("1 to 1000 bytes"));
  EXPECT_THAT(Complaint(CheckPut({MakeItem(0, 1, 1'001)})), HasSubstr("1 to 1000 bytes"));
  std::string hashes;
  const std::vector<Item> items{MakeItem(0, 1, 10)};
  EXPECT_EQ(BuildGetRuns(spec_, items, &hashes)[0].bytes, 10u);
}

TEST_F(ItemsTest, PutsHaveNoRangeAndWholeParents) {
  std::vector<Item> items{MakeItem(0)};
  items[0].parent = "short";
  EXPECT_THAT(Complaint(CheckPut(items)), StartsWith("items[0].parent: empty or 16"));
  items[0].parent = "";
  items[0].offset = 1;
  EXPECT_THAT(Complaint(CheckPut(items)), StartsWith("items[0].offset"));
}

TEST_F(ItemsTest, GetRunsJoinItemsThatDifferInHashOnly) {
  std::vector<Item> items{MakeItem(0), MakeItem(1), MakeItem(2), MakeItem(3)};
  items[2].shard = 1;
  items[3].shard = 1;
  items[3].offset = 10;
  std::string hashes;
  const auto runs = BuildGetRuns(spec_, items, &hashes);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].hashes, TestHash(0) + TestHash(1));
  EXPECT_EQ(runs[1].hashes, TestHash(2));
  EXPECT_EQ(runs[1].shard, 1u);
  EXPECT_EQ(runs[2].offset, 10u);
}

TEST_F(ItemsTest, PutRunsJoinConsecutiveBlocksOfAChain) {
  std::vector<Item> items{MakeItem(0, 1, 10), MakeItem(1, 1, 10), MakeItem(2, 1, 20), MakeItem(3, 1, 10),
                          MakeItem(4, 1, 10)};
  for (size_t i = 0; i < items.size(); ++i) items[i].depth = 5 + i;
  items[0].parent = items[4].hash;
  items[1].parent = items[0].hash;
  items[3].parent = items[0].hash;  // not the block before: a run of its own
  items[4].depth = 20;
  std::string hashes;
  const auto runs = BuildPutRuns(items, &hashes);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].first_block, 5u);
  EXPECT_EQ(runs[0].hashes, TestHash(0) + TestHash(1) + TestHash(2));
  EXPECT_EQ(runs[0].parent, TestHash(4));
  EXPECT_THAT(runs[0].bytes, ElementsAre(10, 10, 20));
  EXPECT_EQ(runs[1].parent, TestHash(0));
  EXPECT_THAT(runs[1].bytes, ElementsAre(10));
  EXPECT_EQ(runs[2].first_block, 20u);
}

TEST(ChainsTest, ABadChainIsNamedWithFieldAndBound) {
  const ModelSpec spec = TestSpec();
  const wire::Limits limits;
  const std::string bytes(32, 'h');
  Chain good;
  good.hashes = HashSpan(bytes, 16);
  const auto with = [&](const std::function<void(Chain&)>& change) {
    Chain chain = good;
    change(chain);
    return Complaint(CheckChains(spec, limits, {&chain, 1}));
  };
  EXPECT_TRUE(CheckChains(spec, limits, {&good, 1}).ok());
  EXPECT_THAT(Complaint(CheckChains(spec, limits, {})), StartsWith("chains: at least 1"));
  EXPECT_THAT(with([](Chain& c) { c.group = 1; }), StartsWith("chains[0].group: 0 to 0"));
  EXPECT_THAT(with([](Chain& c) { c.hashes = {}; }), StartsWith("chains[0].hashes: at least 1"));
  EXPECT_THAT(with([&](Chain& c) { c.hashes = HashSpan(bytes, 32); }), HasSubstr("16 bytes each"));
  EXPECT_THAT(with([&](Chain& c) { c.hashes = HashSpan(bytes, 0); }), HasSubstr("16 bytes each"));
  EXPECT_THAT(with([&](Chain& c) { c.hashes = HashSpan({bytes.data(), 31}, 16); }), HasSubstr("multiple"));
  const Chain twice[] = {good, good};
  EXPECT_THAT(Complaint(CheckChains(spec, limits, twice)), StartsWith("chains[1].group"));
  wire::Limits few;
  few.max_items = 1;
  EXPECT_THAT(Complaint(CheckChains(spec, few, {&good, 1})), HasSubstr("max_items"));
  good.first_block = 3;
  EXPECT_TRUE(CheckChainStarts(spec, 48, {&good, 1}).ok());
  EXPECT_THAT(Complaint(CheckChainStarts(spec, 47, {&good, 1})), StartsWith("chains[0].first_block: at most 2"));
}

}  // namespace
}  // namespace quarry
