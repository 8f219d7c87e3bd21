#include "tools/bench/run_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace quarry::bench {
namespace {

TEST(RunOrder, ReadsEachRunOnceBeforeAnyIsReadAgain) {
  constexpr uint64_t kRuns = 100;
  RunOrder order(kRuns, 1);
  std::vector<uint64_t> first(kRuns), second(kRuns);
  for (uint64_t& run : first) run = order.Next();
  for (uint64_t& run : second) run = order.Next();
  EXPECT_EQ(std::set<uint64_t>(first.begin(), first.end()).size(), kRuns);
  EXPECT_EQ(*std::max_element(first.begin(), first.end()), kRuns - 1);
  // The same order, so that as many lie between two reads of each.
  EXPECT_EQ(first, second);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
}

TEST(RunOrder, OfOneRunIsThatRun) {
  RunOrder order(1, 7);
  EXPECT_EQ(order.Next(), 0);
  EXPECT_EQ(order.Next(), 0);
}

}  // namespace
}  // namespace quarry::bench
