#include "common/placement.h"

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"

namespace quarry {
namespace {

// From the words: the span that holds a block's first token, and the blocks that start in it.
BlockRange NaiveSpan(uint64_t block, uint64_t tokens) {
  uint64_t start = 0;
  uint64_t next = 512;
  while (block * tokens >= next) {
    start = next;
    next *= 8;
  }
  uint64_t first = 0;
  while (first * tokens < start) ++first;
  uint64_t end = first;
  while (end * tokens < next) ++end;
  return {first, end};
}

TEST(SpanOf, FollowsTheBoundaries) {
  EXPECT_EQ(SpanOf(0, 16), (BlockRange{0, 32}));
  EXPECT_EQ(SpanOf(31, 16), (BlockRange{0, 32}));
  EXPECT_EQ(SpanOf(32, 16), (BlockRange{32, 256}));
  EXPECT_EQ(SpanOf(256, 16), (BlockRange{256, 2048}));
  EXPECT_EQ(SpanOf(0, 512), (BlockRange{0, 1}));
  EXPECT_EQ(SpanOf(1, 512), (BlockRange{1, 8}));
  // A block that straddles token 512 belongs to the span that holds its first token.
  EXPECT_EQ(SpanOf(1, 500), (BlockRange{0, 2}));
  EXPECT_EQ(SpanOf(2, 500), (BlockRange{2, 9}));
  // One block longer than spans: those that it covers have no blocks.
  EXPECT_EQ(SpanOf(0, 1 << 20), (BlockRange{0, 1}));
  EXPECT_EQ(SpanOf(1, 1 << 20), (BlockRange{1, 2}));
}

TEST(SpanOf, EqualsTheNaiveReadingAndCutsTheChainWithoutGaps) {
  for (const uint32_t tokens : {1, 3, 16, 48, 512, 700, 5000}) {
    uint64_t expected_first = 0;
    for (uint64_t block = 0; block < 3000; ++block) {
      const BlockRange span = SpanOf(block, tokens);
      ASSERT_EQ(span, NaiveSpan(block, tokens)) << block << " of " << tokens;
      if (block == span.first) {
        ASSERT_EQ(block, expected_first);
      }
      if (block == span.end - 1) expected_first = span.end;
    }
  }
}

TEST(SpanOf, SurvivesIndicesAtTheEndOfTheNumbers) {
  const BlockRange span = SpanOf(UINT64_MAX, kMaxTokensPerBlock);
  EXPECT_LE(span.first, UINT64_MAX);
  EXPECT_EQ(span.end, UINT64_MAX);
  EXPECT_EQ(SpanOf(UINT64_MAX - 1, 1).end, UINT64_MAX);
}

TEST(PlacementSlot, DependsOnNamespaceAndHashAndSpreads) {
  EXPECT_EQ(PlacementSlot("ns", "hash"), PlacementSlot("ns", "hash"));
  std::set<uint32_t> slots;
  std::set<uint32_t> others;
  for (int i = 0; i < 1000; ++i) {
    slots.insert(PlacementSlot("one", absl::StrCat("hash", i)));
    others.insert(PlacementSlot("two", absl::StrCat("hash", i)));
  }
  EXPECT_LT(*slots.rbegin(), kPlacementSlots);
  EXPECT_GT(slots.size(), 950u);  // 1000 into 65536: about 992 distinct
  EXPECT_NE(slots, others);
}

// What every node and every later version must agree on.
TEST(PlacementSlot, IsFixed) { EXPECT_EQ(PlacementSlot("", ""), 0x2d06800538d394c2u % kPlacementSlots); }

}  // namespace
}  // namespace quarry
