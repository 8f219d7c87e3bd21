#include "server/dram/ghost_filter.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/common/test_seed.h"

namespace quarry::server {
namespace {

TEST(GhostFilterTest, RemembersTheNewestCause) {
  GhostFilter filter(1024);
  EXPECT_EQ(filter.Recall(42), MissCause::kNeverStored);
  filter.Remember(42, MissCause::kEvicted);
  EXPECT_EQ(filter.Recall(42), MissCause::kEvicted);
  filter.Remember(42, MissCause::kCorrupt);
  EXPECT_EQ(filter.Recall(42), MissCause::kCorrupt);
  EXPECT_EQ(filter.Recall(43), MissCause::kNeverStored);
}

TEST(GhostFilterTest, IsBoundedAndForgetsTheOldestFirst) {
  constexpr uint64_t kEntries = 4096;
  GhostFilter filter(kEntries);
  std::mt19937_64 random(TestSeed());
  std::vector<uint64_t> hashes(100 * kEntries);
  for (uint64_t& hash : hashes) hash = random();
  const uint64_t bytes = filter.memory_bytes();
  for (uint64_t hash : hashes) filter.Remember(hash, MissCause::kEvicted);
  EXPECT_EQ(filter.memory_bytes(), bytes);
  EXPECT_LE(bytes, kEntries * sizeof(uint32_t));
  size_t remembered = 0;
  for (uint64_t hash : hashes) remembered += filter.Recall(hash) == MissCause::kEvicted;
  EXPECT_LE(remembered, kEntries + 10);
  // Nearly all of the newest half are still known.
  size_t newest = 0;
  for (size_t i = hashes.size() - kEntries / 2; i < hashes.size(); ++i) {
    newest += filter.Recall(hashes[i]) == MissCause::kEvicted;
  }
  EXPECT_GE(newest, kEntries / 2 * 9 / 10);
}

}  // namespace
}  // namespace quarry::server
