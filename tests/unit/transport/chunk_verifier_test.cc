#include "common/transport/chunk_verifier.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/common/test_seed.h"
#include "tests/unit/transport/memory.h"

namespace quarry::transport {
namespace {

constexpr uint64_t kNoEdges[2] = {0, 0};

TEST(RangeEdgesTest, PartialChunksAreThoseThatTheRangeCuts) {
  constexpr size_t kChunk = kChunkBytes;
  constexpr size_t kPayload = 3 * kChunk + 10;
  const auto edges = [](size_t begin, size_t end) {
    const RangeEdges found = EdgesOf({begin, end - begin, kPayload});
    return std::pair(found.first_partial, found.last_partial);
  };
  using Partial = std::pair<bool, bool>;
  EXPECT_EQ(edges(0, kPayload), Partial(false, false));
  EXPECT_EQ(edges(kChunk, 2 * kChunk), Partial(false, false));
  EXPECT_EQ(edges(3 * kChunk, kPayload), Partial(false, false)) << "the last chunk is short, but covered";
  EXPECT_EQ(edges(1, kPayload), Partial(true, false));
  EXPECT_EQ(edges(0, kPayload - 1), Partial(false, true));
  EXPECT_EQ(edges(1, 2 * kChunk + 1), Partial(true, true));
  EXPECT_EQ(edges(1, 2), Partial(true, false)) << "one chunk is the first only";
  EXPECT_EQ(edges(kChunk, kChunk + 1), Partial(true, false));
  EXPECT_EQ(edges(2 * kChunk - 1, 2 * kChunk), Partial(true, false));
}

TEST(ChunkVerifierTest, SumsEveryChunkHoweverItsBytesArrive) {
  TestRandom random;
  for (Shape shape : kShapes) {
    const size_t bytes = random.Between(1, 400'000);
    const Bytes payload = Payload(random.Between(0, 1000), bytes);
    ScatteredBuffer buffer(shape, bytes);
    buffer.Fill(payload);
    std::vector<uint64_t> expected;
    for (size_t at = 0; at < bytes; at += kChunkBytes) {
      expected.push_back(ChunkSum(payload.data() + at, std::min(kChunkBytes, bytes - at)));
    }
    std::vector<uint64_t> computed(expected.size());
    ChunkVerifier verifier;
    verifier.Start(buffer.segments(), {0, bytes, bytes}, expected, kNoEdges, computed.data());
    for (size_t arrived = 0; arrived < bytes;) {
      arrived += random.Between(1, std::min<size_t>(bytes - arrived, 100'000));
      verifier.Advance(arrived);
    }
    EXPECT_TRUE(verifier.intact());
    EXPECT_EQ(computed, expected);

    // And again with one sum that differs.
    expected[random.Between(0, expected.size() - 1)] ^= 1;
    verifier.Start(buffer.segments(), {0, bytes, bytes}, expected, kNoEdges, nullptr);
    verifier.Advance(bytes);
    EXPECT_FALSE(verifier.intact());
  }
}

TEST(ChunkVerifierTest, WithoutExpectationsItOnlyComputes) {
  const Bytes payload = Payload(1, 100'000);
  ScatteredBuffer buffer(Shape::kOdd, payload.size());
  buffer.Fill(payload);
  uint64_t sums[2] = {0, 0};
  ChunkVerifier verifier;
  verifier.Start(buffer.segments(), {0, payload.size(), payload.size()}, {}, kNoEdges, sums);
  verifier.Advance(payload.size());
  EXPECT_TRUE(verifier.intact());
  EXPECT_EQ(sums[0], ChunkSum(payload.data(), kChunkBytes));
  EXPECT_EQ(sums[1], ChunkSum(payload.data() + kChunkBytes, payload.size() - kChunkBytes));
}

}  // namespace
}  // namespace quarry::transport
