#include "server/dram/block_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "tests/unit/common/test_seed.h"
#include "tests/unit/server/store_testing.h"

namespace quarry::server {
namespace {

std::unique_ptr<BlockIndex> MakeIndex(uint32_t shards, uint64_t max_blocks) {
  auto index = BlockIndex::Create(shards, max_blocks);
  EXPECT_TRUE(index.ok()) << index.status();
  return *std::move(index);
}

using Key = std::tuple<uint16_t, uint8_t, std::string>;

BlockKey ToKey(const Key& key) { return {std::get<0>(key), std::get<1>(key), std::get<2>(key)}; }

Key RandomKey(TestRandom& random) {
  // Few namespaces, groups and ids, so that keys differ in one part only and come back.
  const uint32_t lengths[] = {16, 24, 32, 33, 64};
  return {static_cast<uint16_t>(random.Between(0, 2)), static_cast<uint8_t>(random.Between(0, 1)),
          TestHash(random.Between(1, 400), lengths[random.Between(0, 4)])};
}

TEST(BlockIndexTest, BehavesAsAMap) {
  TestRandom random;
  auto index = MakeIndex(4, 4096);
  std::map<Key, uint32_t> oracle;
  for (int step = 0; step < 60'000; ++step) {
    const Key key = RandomKey(random);
    const uint64_t hash = index->Hash(ToKey(key));
    std::lock_guard<std::mutex> lock(index->mutex(index->ShardOf(hash)));
    const uint32_t found = index->Find(hash, ToKey(key));
    const auto it = oracle.find(key);
    ASSERT_EQ(found, it == oracle.end() ? kNoBlock : it->second) << "step " << step;
    // Grows for a while, then shrinks, and so on.
    const bool growing = step / 10'000 % 2 == 0;
    if (found == kNoBlock && random.Chance(growing ? 0.9 : 0.1)) {
      const uint32_t block = index->Insert(hash, ToKey(key), static_cast<uint32_t>(random.Between(1, 3)));
      ASSERT_NE(block, kNoBlock);
      ASSERT_EQ(index->ShardOfBlock(block), index->ShardOf(hash));
      ASSERT_EQ(index->HashOf(block), hash);
      oracle[key] = block;
    } else if (found != kNoBlock && random.Chance(growing ? 0.1 : 0.9)) {
      index->Unlink(found);
      ASSERT_EQ(index->Find(hash, ToKey(key)), kNoBlock);
      index->Free(found);
      oracle.erase(it);
    }
  }
}

TEST(BlockIndexTest, BatchFindsEachItemUnderItsShardsMutex) {
  auto index = MakeIndex(8, 4096);
  std::map<uint64_t, uint32_t> blocks;
  for (uint64_t id = 1; id <= 1000; id += 2) {
    const std::string hash = TestHash(id);
    const BlockKey key{7, 1, hash};
    blocks[id] = index->Insert(index->Hash(key), key, 1);
  }
  const std::string hashes = TestHashes(Range(1, 1000));
  BlockBatch batch(index.get(), 7);
  batch.Add(1, HashSpan(hashes, 32));
  batch.Add(0, HashSpan(hashes, 32));  // the same hashes in another group
  std::vector<int> visits(2000, 0);
  index->Visit(&batch, [&](uint32_t item, uint32_t block) {
    ++visits[item];
    const bool there = item < 1000 && item % 2 == 0;
    ASSERT_EQ(block, there ? blocks[item + 1] : kNoBlock) << item;
    ASSERT_FALSE(index->mutex(index->ShardOf(batch.hash(item))).try_lock());
  });
  for (int count : visits) ASSERT_EQ(count, 1);
}

TEST(BlockIndexTest, BatchDoesNotFindWhatWasUnlinkedOrReplacedMeanwhile) {
  auto index = MakeIndex(2, 4096);
  const auto key = [](const std::string& hash) { return BlockKey{0, 0, hash}; };
  const auto insert = [&](uint64_t id) {
    const std::string hash = TestHash(id);
    return index->Insert(index->Hash(key(hash)), key(hash), 1);
  };
  std::map<uint64_t, uint32_t> blocks;
  for (uint64_t id = 1; id <= 300; ++id) blocks[id] = insert(id);
  const std::string hashes = TestHashes(Range(1, 300));
  BlockBatch batch(index.get(), 0);
  batch.Add(0, HashSpan(hashes, 32));
  for (uint64_t id = 1; id <= 300; ++id) {
    if (id % 3 == 0) continue;
    index->Unlink(blocks[id]);
    if (id % 3 == 1) index->Free(blocks[id]);
    blocks[id] = kNoBlock;
  }
  for (uint64_t id = 1; id <= 300; id += 6) blocks[id] = insert(id);  // mostly in other entries
  for (uint64_t id = 1001; id <= 1100; ++id) insert(id);
  index->Visit(&batch, [&](uint32_t item, uint32_t block) { ASSERT_EQ(block, blocks[item + 1]) << item; });
}

TEST(BlockIndexTest, FullIndexSaysSo) {
  auto index = MakeIndex(1, 16);
  uint32_t inserted = 0;
  for (uint64_t id = 1; id < 100'000; ++id, ++inserted) {
    const std::string hash = TestHash(id);
    const BlockKey key{0, 0, hash};
    if (index->Insert(index->Hash(key), key, 1) == kNoBlock) break;
  }
  EXPECT_GE(inserted, 16u);
  EXPECT_LT(inserted, 99'999u);
}

TEST(BlockIndexTest, HashIsKeyedPerProcess) {
  auto one = MakeIndex(1, 16);
  auto two = MakeIndex(1, 16);
  const std::string hash = TestHash(1);
  EXPECT_NE(one->Hash({0, 0, hash}), two->Hash({0, 0, hash}));
}

TEST(BlockIndexTest, ShardsMustBeAPowerOfTwo) {
  EXPECT_THAT(std::string(BlockIndex::Create(3, 16).status().message()), ::testing::HasSubstr("index_shards"));
  EXPECT_FALSE(BlockIndex::Create(0, 16).ok());
}

}  // namespace
}  // namespace quarry::server
