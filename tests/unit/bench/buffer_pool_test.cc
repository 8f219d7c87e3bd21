#include "tools/bench/buffer_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace quarry::bench {
namespace {

TEST(BufferPool, PiecesOfWhatIsTakenNeverOverlap) {
  auto pool = BufferPool::Create(64 * 1024, 1024, 3);
  ASSERT_TRUE(pool.ok());
  std::set<std::byte*> places;
  std::vector<SegmentList> taken;
  for (int i = 0; i < 16; ++i) taken.push_back((*pool)->Take(4096));
  for (const SegmentList& segments : taken) {
    ASSERT_EQ(segments.size(), 4);
    for (const Segment& segment : segments) {
      EXPECT_TRUE(places.insert(segment.base).second);
      EXPECT_EQ((segment.base - (*pool)->base()) % 1024, 0);
      EXPECT_LT(segment.base - (*pool)->base(), 64 * 1024);
    }
  }
  EXPECT_EQ((*pool)->free_pieces(), 0);
  EXPECT_TRUE((*pool)->Take(8).empty());
  (*pool)->Return(taken[5]);
  EXPECT_EQ((*pool)->Take(4096).size(), 4);
}

TEST(BufferPool, CutsTheLastPieceShort) {
  auto pool = BufferPool::Create(64 * 1024, 1024, 3);
  ASSERT_TRUE(pool.ok());
  const SegmentList segments = (*pool)->Take(2560);
  ASSERT_EQ(segments.size(), 3);
  EXPECT_EQ(segments[2].length, 512);
  EXPECT_EQ(TotalBytes(segments), 2560);
}

TEST(BufferPool, HandsOutPlacesInNoOrder) {
  auto pool = BufferPool::Create(1 << 20, 4096, 3);
  ASSERT_TRUE(pool.ok());
  const SegmentList segments = (*pool)->Take(1 << 20);
  int neighbours = 0;
  for (size_t i = 1; i < segments.size(); ++i) neighbours += segments[i].base == segments[i - 1].base + 4096;
  EXPECT_LT(neighbours, 16);
}

TEST(BufferPool, RefusesPiecesThatContentCannotFill) {
  EXPECT_TRUE(absl::IsInvalidArgument(BufferPool::Create(4096, 0, 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(BufferPool::Create(4096, 12, 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(BufferPool::Create(512, 1024, 1).status()));
}

}  // namespace
}  // namespace quarry::bench
