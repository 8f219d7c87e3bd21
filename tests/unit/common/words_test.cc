#include <gtest/gtest.h>

#include <set>
#include <string>

#include "common/clock.h"
#include "common/random.h"
#include "quarry/block.h"

namespace quarry {
namespace {

// Every value has a name of its own; none falls through to "unknown".
template <typename Enum>
void ExpectDistinctNames(int values) {
  std::set<std::string> names;
  for (int i = 0; i < values; ++i) names.insert(std::string(Name(static_cast<Enum>(i))));
  EXPECT_EQ(names.size(), static_cast<size_t>(values));
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_EQ(Name(static_cast<Enum>(values)), "unknown");
}

TEST(Words, EveryValueHasItsName) {
  ExpectDistinctNames<MissCause>(kMissCauses);
  ExpectDistinctNames<RefusalReason>(kRefusalReasons);
  ExpectDistinctNames<LeaseLimit>(kLeaseLimits);
  ExpectDistinctNames<BlockState>(5);
  EXPECT_EQ(Name(MissCause::kNeverStored), "never_stored");
  EXPECT_EQ(Name(RefusalReason::kNoSpace), "no_space");
  EXPECT_EQ(Name(BlockState::kDram), "dram");
}

TEST(HashSpan, CutsPackedHashes) {
  const HashSpan hashes("aaaabbbbcccc", 4);
  ASSERT_EQ(hashes.size(), 3u);
  EXPECT_EQ(hashes[1], "bbbb");
  EXPECT_EQ(hashes.subspan(1, 2).bytes(), "bbbbcccc");
  EXPECT_TRUE(HashSpan().empty());
}

TEST(Clock, RealNeverGoesBackAndManualMovesOnlyWhenTold) {
  const int64_t first = Clock::Real()->NowNs();
  EXPECT_GE(Clock::Real()->NowNs(), first);
  ManualClock manual;
  const int64_t start = manual.NowNs();
  EXPECT_EQ(manual.NowNs(), start);
  manual.AdvanceMs(7);
  EXPECT_EQ(manual.NowNs(), start + 7'000'000);
}

TEST(SecureRandom, GivesAsManyBytesAsAskedAndNeverTheSame) {
  EXPECT_EQ(SecureRandomBytes(0), "");
  EXPECT_EQ(SecureRandomBytes(1 << 20).size(), size_t{1} << 20);
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(SecureRandomBytes(16));
  EXPECT_EQ(seen.size(), 1000u);
}

}  // namespace
}  // namespace quarry
