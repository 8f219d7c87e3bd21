#include "client/cuda/slot_space.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace quarry::cuda {
namespace {

TEST(SlotSpaceTest, TakesAllOfItsBytesAndNotOneMore) {
  SlotSpace space(1000);
  EXPECT_EQ(space.Take(1001), std::nullopt);
  EXPECT_EQ(space.Take(0), std::nullopt);
  EXPECT_EQ(space.Take(1000), 0u);
  EXPECT_EQ(space.Take(1), std::nullopt);
  space.Give(0);
  EXPECT_TRUE(space.empty());
  EXPECT_EQ(space.Take(256), 0u);
  EXPECT_EQ(space.Take(700), 256u);  // to the end, which is not aligned
}

TEST(SlotSpaceTest, WhatIsGivenBackJoinsItsNeighbours) {
  SlotSpace space(4096);
  const auto a = space.Take(1024);
  const auto b = space.Take(1024);
  const auto c = space.Take(1024);
  const auto d = space.Take(1024);
  ASSERT_TRUE(a && b && c && d);
  space.Give(*b);
  EXPECT_EQ(space.Take(2048), std::nullopt);
  space.Give(*c);
  EXPECT_EQ(space.Take(2048), b);
  space.Give(*a);
  space.Give(*d);
  space.Give(*b);
  EXPECT_EQ(space.Take(4096), 0u);
}

TEST(SlotSpaceTest, SlotsNeverOverlapAndRoomComesBack) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr size_t kBytes = 100'000;
  SlotSpace space(kBytes);
  std::map<size_t, size_t> taken;
  for (int i = 0; i < 20'000; ++i) {
    if (!taken.empty() && random() % 2 == 0) {
      const auto slot = std::next(taken.begin(), static_cast<std::ptrdiff_t>(random() % taken.size()));
      space.Give(slot->first);
      taken.erase(slot);
      continue;
    }
    const size_t bytes = 1 + random() % 9000;
    const auto offset = space.Take(bytes);
    if (!offset.has_value()) continue;
    ASSERT_EQ(*offset % SlotSpace::kAlignment, 0u);
    ASSERT_LE(*offset + bytes, kBytes);
    const auto next = taken.lower_bound(*offset);
    ASSERT_TRUE(next == taken.end() || *offset + bytes <= next->first);
    ASSERT_TRUE(next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= *offset);
    taken.emplace(*offset, bytes);
  }
  for (const auto& [offset, bytes] : taken) space.Give(offset);
  EXPECT_EQ(space.Take(kBytes), 0u);
}

}  // namespace
}  // namespace quarry::cuda
