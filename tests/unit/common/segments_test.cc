#include "quarry/segments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "tests/unit/common/test_seed.h"

namespace quarry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kArena = 4096;

class Segments : public ::testing::Test {
 protected:
  std::byte* At(size_t offset) { return arena_.data() + offset; }
  MemoryRange Range(size_t offset, size_t bytes) { return {At(offset), bytes}; }
  MemoryRange All() { return Range(0, kArena); }

  absl::Status Check(const SegmentList& list, size_t bytes, SegmentUse use = SegmentUse::kDestination) {
    const MemoryRange all = All();
    return ValidateSegments(list, use, absl::MakeConstSpan(&all, 1), bytes);
  }

  std::vector<std::byte> arena_ = std::vector<std::byte>(kArena);
};

#define EXPECT_REFUSED(status, ...)                                  \
  do {                                                               \
    const absl::Status refused = (status);                           \
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);   \
    EXPECT_THAT(std::string(refused.message()), AllOf(__VA_ARGS__)); \
  } while (false)

TEST_F(Segments, AcceptsListsThatHold) {
  EXPECT_TRUE(Check({}, 0).ok());
  EXPECT_TRUE(Check({{At(0), kArena, 0, 1}}, kArena).ok());
  EXPECT_TRUE(Check({{At(0), 64, 128, 32}, {At(64), 64, 128, 32}}, kArena).ok());  // interleaved, no gap
  EXPECT_TRUE(Check({{At(100), 10, 0, 1}, {At(0), 10, 0, 1}, {At(50), 10, 0, 1}}, 30).ok());
  EXPECT_TRUE(Check({{At(0), 1, SIZE_MAX, 1}}, 1).ok());  // the stride of one piece means nothing
}

TEST_F(Segments, RefusesEmptySegments) {
  EXPECT_REFUSED(Check({{At(0), 8, 0, 1}, {At(8), 0, 8, 2}}, 8), HasSubstr("segments[1].length"),
                 HasSubstr("at least 1"));
  EXPECT_REFUSED(Check({{At(0), 8, 0, 0}}, 8), HasSubstr("segments[0].count"), HasSubstr("at least 1"));
}

TEST_F(Segments, RefusesAddressOverflow) {
  const auto beyond = HasSubstr("beyond the address space");
  EXPECT_REFUSED(Check({{At(0), SIZE_MAX, 0, 1}}, 8), HasSubstr("segments[0]"), beyond);
  EXPECT_REFUSED(Check({{At(0), 1, SIZE_MAX / 2, 4}}, 4), beyond);      // stride * count wraps
  EXPECT_REFUSED(Check({{At(0), 1, SIZE_MAX / 3, 4}}, 4), beyond);      // base + stride * count wraps
  EXPECT_REFUSED(Check({{At(0), 8, SIZE_MAX - 3, 2}}, 16), beyond);     // + length wraps
  EXPECT_REFUSED(Check({{At(0), 8, size_t{1} << 63, 3}}, 24), beyond);  // wraps to exactly 0
}

TEST_F(Segments, RefusesAWrongTotal) {
  EXPECT_REFUSED(Check({{At(0), 8, 16, 2}}, 17), HasSubstr("16 bytes"), HasSubstr("17"));
  EXPECT_REFUSED(Check({{At(0), 8, 16, 2}, {At(64), 1, 0, 1}}, 16), HasSubstr("segments[1]"), HasSubstr("16"));
  EXPECT_REFUSED(Check({}, 1), HasSubstr("1"));
  // length * count that wraps to the expected total
  EXPECT_REFUSED(Check({{At(0), size_t{1} << 62, 0, 4}}, 0, SegmentUse::kSource), HasSubstr("segments[0]"));
}

TEST_F(Segments, RefusesTooManyPieces) {
  EXPECT_TRUE(Check({{At(0), 1, 0, kMaxSegmentPieces}}, kMaxSegmentPieces, SegmentUse::kSource).ok());
  EXPECT_REFUSED(
      Check({{At(0), 1, 0, kMaxSegmentPieces}, {At(0), 1, 0, 1}}, kMaxSegmentPieces + 1, SegmentUse::kSource),
      HasSubstr("segments[1].count"), HasSubstr("1048576"));
  EXPECT_REFUSED(Check({{At(0), 1, 0, 2}, {At(0), 1, 0, SIZE_MAX}}, 2, SegmentUse::kSource), HasSubstr("1048576"));
}

TEST_F(Segments, RefusesPiecesOutsideTheRegisteredRanges) {
  const auto outside = HasSubstr("not inside one registered range");
  const auto check = [](const SegmentList& list, const std::vector<MemoryRange>& ranges) {
    return ValidateSegments(list, SegmentUse::kDestination, ranges, TotalBytes(list));
  };
  EXPECT_REFUSED(check({{At(0), 8, 0, 1}}, {}), outside);
  EXPECT_REFUSED(check({{At(99), 8, 0, 1}}, {Range(100, 100)}), HasSubstr("segments[0]: piece 0"), outside);
  EXPECT_REFUSED(check({{At(193), 8, 0, 1}}, {Range(100, 100)}), outside);
  EXPECT_REFUSED(check({{At(200), 8, 0, 1}}, {Range(100, 100)}), outside);
  EXPECT_TRUE(check({{At(192), 8, 0, 1}}, {Range(100, 100)}).ok());
  // One descriptor over three ranges; then with a hole under its second piece.
  EXPECT_TRUE(check({{At(0), 8, 1000, 3}}, {Range(0, 8), Range(1000, 8), Range(2000, 8)}).ok());
  EXPECT_REFUSED(check({{At(0), 8, 1000, 3}}, {Range(0, 8), Range(2000, 8)}), HasSubstr("piece 1"), outside);
  EXPECT_REFUSED(check({{At(0), 8, 1000, 3}}, {Range(0, 8), Range(1000, 7), Range(2000, 8)}), HasSubstr("piece 1"));
  // Ranges that touch are still two.
  EXPECT_REFUSED(check({{At(4), 8, 0, 1}}, {Range(0, 8), Range(8, 8)}), outside);
}

TEST_F(Segments, RefusesOverlapInDestinationsOnly) {
  const SegmentList within = {{At(0), 8, 7, 2}};
  EXPECT_REFUSED(Check(within, 16), HasSubstr("segments[0].stride"), HasSubstr("at least its length, 8"),
                 HasSubstr("is 7"));
  EXPECT_TRUE(Check(within, 16, SegmentUse::kSource).ok());
  EXPECT_TRUE(Check({{At(0), 8, 8, 2}}, 16).ok());
  const std::vector<SegmentList> between = {
      {{At(0), 8, 0, 1}, {At(7), 8, 0, 1}},
      {{At(7), 8, 0, 1}, {At(0), 8, 0, 1}},
      {{At(0), 8, 0, 1}, {At(0), 8, 0, 1}},
      {{At(100), 8, 0, 1}, {At(0), 200, 0, 1}},
      {{At(0), 64, 128, 8}, {At(63), 64, 128, 8}},  // every K meets a V
      {{At(0), 64, 128, 8}, {At(65), 64, 128, 8}},  // every V the next K
      {{At(0), 64, 128, 8}, {At(64), 64, 128, 7}, {At(1023), 1, 0, 1}, {At(1022), 2, 0, 1}},
      {{At(0), 8, 100, 10}, {At(10), 8, 99, 10}},  // strides that drift into each other
  };
  for (size_t i = 0; i < between.size(); ++i) {
    EXPECT_REFUSED(Check(between[i], TotalBytes(between[i])), HasSubstr("overlap"),
                   HasSubstr(i == 6 ? "segments[2] and segments[3]" : "segments[0] and segments[1]"));
    EXPECT_TRUE(Check(between[i], TotalBytes(between[i]), SegmentUse::kSource).ok());
  }
}

// Whether the list holds, piece by piece and byte by byte.
bool Holds(const SegmentList& list, const std::vector<MemoryRange>& ranges, bool destination, const std::byte* arena) {
  std::vector<int> uses(kArena);
  for (const Segment& segment : list) {
    for (size_t piece = 0; piece < segment.count; ++piece) {
      const std::byte* start = segment.base + piece * segment.stride;
      const bool inside = std::any_of(ranges.begin(), ranges.end(), [&](const MemoryRange& range) {
        return start >= range.base && start + segment.length <= range.base + range.bytes;
      });
      if (!inside) return false;
      for (size_t i = 0; i < segment.length; ++i) {
        if (++uses[start - arena + i] > 1 && destination) return false;
      }
    }
  }
  return true;
}

TEST_F(Segments, ValidationEqualsTheByteMap) {
  TestRandom random;
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::vector<MemoryRange> ranges =
        random.Chance(0.7) ? std::vector<MemoryRange>{All()}
                           : std::vector<MemoryRange>{Range(0, 1000), Range(1000, 500), Range(1600, 2496)};
    SegmentList list;
    for (uint64_t n = random.Between(1, 4); n > 0; --n) {
      const size_t length = random.Between(1, 40);
      const size_t count = random.Between(1, 8);
      const size_t stride = random.Chance(0.1)   ? random.Between(0, 40)
                            : random.Chance(0.5) ? 128
                                                 : random.Between(40, 150);
      list.push_back({At(random.Between(0, kArena - (count - 1) * stride - length)), length, stride, count});
    }
    for (const SegmentUse use : {SegmentUse::kSource, SegmentUse::kDestination}) {
      const bool expected = Holds(list, ranges, use == SegmentUse::kDestination, arena_.data());
      const absl::Status status = ValidateSegments(list, use, ranges, TotalBytes(list));
      ASSERT_EQ(status.ok(), expected) << status << " in case " << i;
      accepted += status.ok() && use == SegmentUse::kDestination ? 1 : 0;
    }
  }
  EXPECT_GT(accepted, 500);
}

std::vector<std::byte*> Expand(const SegmentList& list) {
  std::vector<std::byte*> bytes;
  for (const Segment& segment : list) {
    for (size_t i = 0; i < segment.length * segment.count; ++i) {
      bytes.push_back(segment.base + i / segment.length * segment.stride + i % segment.length);
    }
  }
  return bytes;
}

TEST_F(Segments, CursorEqualsTheNaiveExpansion) {
  TestRandom random;
  for (int i = 0; i < 2000; ++i) {
    SegmentList list;
    for (uint64_t n = random.Between(0, 4); n > 0; --n) {
      const size_t length = random.Between(1, 30);
      const size_t stride = random.Chance(0.3) ? length : random.Between(length, 60);
      list.push_back({At(random.Between(0, 2000)), length, stride, random.Between(1, 9)});
    }
    const std::vector<std::byte*> bytes = Expand(list);
    ASSERT_EQ(TotalBytes(list), bytes.size());
    size_t at = random.Between(0, bytes.size());
    SegmentCursor cursor(list, at);
    for (int step = 0; step < 40; ++step) {
      iovec out[6];
      const size_t max = random.Between(1, 6);
      const size_t want = random.Between(0, 90);
      size_t covered = 0;
      const size_t used = cursor.Peek(out, max, want, &covered);
      ASSERT_LE(used, max);
      std::vector<std::byte*> seen;
      for (size_t n = 0; n < used; ++n) {
        ASSERT_GT(out[n].iov_len, 0u);
        for (size_t b = 0; b < out[n].iov_len; ++b) seen.push_back(static_cast<std::byte*>(out[n].iov_base) + b);
      }
      ASSERT_EQ(seen.size(), covered);
      ASSERT_LE(covered, want);
      if (used < max) {  // only `max` may cut it short
        ASSERT_EQ(covered, std::min(want, bytes.size() - at));
      }
      ASSERT_TRUE(std::equal(seen.begin(), seen.end(), bytes.begin() + static_cast<ptrdiff_t>(at)));
      const size_t advance = random.Chance(0.5) ? covered : random.Between(0, 40);
      cursor.Advance(advance);
      at = std::min(at + advance, bytes.size());
    }
  }
}

TEST_F(Segments, CursorJoinsAdjacentPieces) {
  const SegmentList list = {{At(0), 10, 10, 5}, {At(50), 6, 0, 1}, {At(60), 4, 0, 1}};
  iovec out[4];
  size_t covered = 0;
  ASSERT_EQ(SegmentCursor(list).Peek(out, 4, 1000, &covered), 2u);
  EXPECT_EQ(out[0].iov_len, 56u);
  EXPECT_EQ(out[1].iov_base, At(60));
  EXPECT_EQ(covered, 60u);
  EXPECT_EQ(SegmentCursor().Peek(out, 4, 1000), 0u);
}

}  // namespace
}  // namespace quarry
