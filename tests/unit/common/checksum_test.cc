#include "common/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/unit/common/test_seed.h"

namespace quarry {
namespace {

std::string RandomBytes(TestRandom* random, size_t bytes) {
  std::string data(bytes, '\0');
  for (char& c : data) c = static_cast<char>(random->Between(0, 255));
  return data;
}

std::vector<uint64_t> OneShot(const std::string& data, size_t first_chunk = kChunkBytes) {
  std::vector<uint64_t> sums;
  for (size_t at = 0; at < data.size();) {
    const size_t chunk = std::min(at == 0 ? first_chunk : kChunkBytes, data.size() - at);
    sums.push_back(ChunkSum(data.data() + at, chunk));
    at += chunk;
  }
  return sums;
}

TEST(ChunkSum, IsXxh3) {
  EXPECT_EQ(ChunkSum("", 0), 0x2d06800538d394c2u);  // XXH3-64 of nothing, seed 0
}

TEST(ChunkCount, CountsTheShorterLastChunk) {
  EXPECT_EQ(ChunkCount(0), 0u);
  EXPECT_EQ(ChunkCount(1), 1u);
  EXPECT_EQ(ChunkCount(kChunkBytes), 1u);
  EXPECT_EQ(ChunkCount(kChunkBytes + 1), 2u);
}

TEST(ChunkSummer, InPiecesEqualsOneShot) {
  TestRandom random;
  ChunkSummer summer;
  for (int i = 0; i < 300; ++i) {
    const std::string data = RandomBytes(&random, random.Between(0, 3) * kChunkBytes + random.Between(0, 200));
    const size_t first = random.Chance(0.5) ? kChunkBytes : random.Between(1, kChunkBytes);
    const size_t largest = random.Chance(0.5) ? 1 << 18 : random.Between(1, 40'000);
    std::vector<uint64_t> sums(ChunkCount(data.size()) + 2);
    summer.Start(first, sums.data());
    for (size_t at = 0; at < data.size();) {
      const size_t piece = std::min<size_t>(random.Between(1, largest), data.size() - at);
      summer.Update(data.data() + at, piece);
      at += piece;
    }
    sums.resize(summer.Finish());
    ASSERT_EQ(sums, OneShot(data, first)) << data.size() << " bytes, first chunk " << first;
  }
}

TEST(ChunkSummer, StartsOverAfterAnUnfinishedItem) {
  const std::string data(1000, 'x');
  uint64_t sum = 0;
  ChunkSummer summer;
  summer.Start(kChunkBytes, &sum);
  summer.Update("stale", 5);
  ChunkSummer moved = std::move(summer);
  moved.Start(kChunkBytes, &sum);
  moved.Update(data.data(), data.size());
  EXPECT_EQ(moved.Finish(), 1u);
  EXPECT_EQ(sum, ChunkSum(data.data(), data.size()));
}

TEST(SumSegments, EqualsTheSumsOfTheBytesInOrder) {
  TestRandom random;
  for (int i = 0; i < 200; ++i) {
    std::string memory = RandomBytes(&random, 400'000);
    auto* base = reinterpret_cast<std::byte*>(memory.data());
    const size_t length = random.Chance(0.3) ? kChunkBytes : random.Between(1, 70'000);
    const size_t stride = random.Between(length, 80'000);
    const size_t count = random.Between(1, 3);
    const SegmentList segments = {{base, length, stride, count}, {base + 300'000, random.Between(1, 99'999), 0, 1}};
    std::string flat;
    for (const Segment& segment : segments) {
      for (size_t piece = 0; piece < segment.count; ++piece) {
        flat.append(reinterpret_cast<char*>(segment.base + piece * segment.stride), segment.length);
      }
    }
    std::vector<uint64_t> sums(ChunkCount(flat.size()));
    SumSegments(segments, flat.size(), sums.data());
    ASSERT_EQ(sums, OneShot(flat));
  }
}

TEST(RootSum, SeesOneFlippedBitAnywhere) {
  TestRandom random;
  std::string data = RandomBytes(&random, kChunkBytes + 777);
  const uint64_t seed = IdentitySeed("namespace", 1, 2, "hash");
  const uint64_t root = RootSum(seed, data.size(), OneShot(data));
  for (int i = 0; i < 3000; ++i) {
    const size_t bit = random.Between(0, data.size() * 8 - 1);
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_NE(RootSum(seed, data.size(), OneShot(data)), root) << "bit " << bit;
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
  }
  EXPECT_EQ(RootSum(seed, data.size(), OneShot(data)), root);
}

TEST(RootSum, CommitsToIdentityAndLength) {
  const std::vector<uint64_t> sums = {1, 2, 3};
  std::set<uint64_t> roots;
  for (const uint64_t seed :
       {IdentitySeed("ns", 0, 0, "hash"), IdentitySeed("nt", 0, 0, "hash"), IdentitySeed("ns", 1, 0, "hash"),
        IdentitySeed("ns", 0, 1, "hash"), IdentitySeed("ns", 0, 0, "hasi"), uint64_t{0}}) {
    roots.insert(RootSum(seed, 3 * kChunkBytes, sums));
    roots.insert(RootSum(seed, 3 * kChunkBytes - 1, sums));
    roots.insert(RootSum(seed, 3 * kChunkBytes, {1, 3, 2}));
  }
  EXPECT_EQ(roots.size(), 18u);
}

TEST(RootSum, IsTheFormulaOfTheHeader) {
  const uint64_t sums[] = {11, 12};
  const uint64_t words[] = {100'000, 11, 12};
  EXPECT_EQ(RootSum(0, 100'000, sums), ChunkSum(words, sizeof(words)));  // seed 0 is the plain sum
  const std::string identity = std::string("ns\1\0\0\0\2\0\0\0hash", 14);
  EXPECT_EQ(IdentitySeed("ns", 1, 2, "hash"), ChunkSum(identity.data(), identity.size()));
}

}  // namespace
}  // namespace quarry
