#include "tools/bench/lru_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <random>

namespace quarry::bench {
namespace {

std::vector<TraceRequest> Sample() {
  auto trace = ReadTrace(QUARRY_TEST_DATA "/conversation_sample.jsonl");
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.ok() ? *trace : std::vector<TraceRequest>();
}

TraceRequest Request(std::vector<uint64_t> blocks) {
  TraceRequest request;
  request.input_tokens = blocks.size() * kTraceBlockTokens;
  request.blocks = std::move(blocks);
  return request;
}

TEST(LruSimulation, WithoutBoundHitsWhatWasSeenBefore) {
  const std::vector<TraceRequest> trace = {Request({1, 2, 3}), Request({1, 2, 4}), Request({9, 2, 3}),
                                           Request({1, 2, 3})};
  const HitCounts counts = Simulate(trace, {});
  EXPECT_EQ(counts.blocks, 12);
  EXPECT_EQ(counts.hit_blocks, 0 + 2 + 0 + 3);  // {9, 2, 3}: no run from the start
}

TEST(LruSimulation, CountsTokensOfAPartialLastBlockOnce) {
  TraceRequest request = Request({1, 2});
  request.input_tokens = 700;
  const HitCounts counts = Simulate(std::vector<TraceRequest>{request, request}, {});
  EXPECT_EQ(counts.tokens, 1400);
  EXPECT_EQ(counts.hit_tokens, 700);
}

TEST(LruSimulation, ChainsLoseTheirTailFirst) {
  const std::vector<TraceRequest> trace = {Request({1, 2, 3, 4}), Request({8, 9}), Request({1, 2, 3, 4})};
  EXPECT_EQ(Simulate(trace, {.capacity_blocks = 4}).hit_blocks, 2);  // 4 and 3 have gone
}

TEST(LruSimulation, ARequestDoesNotEvictWhatItHit) {
  const std::vector<TraceRequest> trace = {Request({1, 2}), Request({1, 2, 3, 4, 5}), Request({1, 2})};
  EXPECT_EQ(Simulate(trace, {.capacity_blocks = 2}).hit_blocks, 4);
}

// The sample's figures by a separate program in another language.
TEST(LruSimulation, AgreesWithAnotherImplementationOnTheSample) {
  const std::vector<TraceRequest> trace = Sample();
  ASSERT_EQ(trace.size(), 300);
  EXPECT_EQ(DistinctBlocks(trace), 7814);
  const HitCounts best = Simulate(trace, {});
  EXPECT_EQ(best.blocks, 8490);
  EXPECT_EQ(best.hit_blocks, 676);
  EXPECT_EQ(best.tokens, 4'269'971);
  EXPECT_EQ(best.hit_tokens, 345'966);
  const std::map<uint64_t, uint64_t> hits_by_capacity = {{78, 299}, {1953, 299}, {3907, 445}, {7814, 676}};
  for (const auto& [capacity, hits] : hits_by_capacity) {
    EXPECT_EQ(Simulate(trace, {EvictionRule::kChainLru, capacity}).hit_blocks, hits) << capacity;
    EXPECT_EQ(Simulate(trace, {EvictionRule::kPlainLru, capacity}).hit_blocks, hits) << capacity;
  }
}

// The chain rule again, by looking at every block for every victim.
uint64_t BruteForceHits(const std::vector<TraceRequest>& trace, size_t capacity) {
  struct Cached {
    uint64_t stamp, depth;
  };
  std::map<uint64_t, Cached> cache;
  uint64_t hits = 0, stamp = 0;
  for (const TraceRequest& request : trace) {
    const std::vector<uint64_t>& blocks = request.blocks;
    size_t run = 0;
    while (run < blocks.size() && cache.count(blocks[run])) ++run;
    hits += run;
    ++stamp;
    for (size_t i = 0; i < run; ++i) cache[blocks[i]].stamp = stamp;
    for (size_t i = run; i < blocks.size(); ++i) {
      if (cache.count(blocks[i])) continue;
      // The parent's, even when the parent is the victim.
      const bool has_parent = i > 0 && cache.count(blocks[i - 1]) != 0;
      const uint64_t own_stamp = has_parent ? cache[blocks[i - 1]].stamp : ++stamp;
      if (cache.size() >= capacity) {
        auto victim = cache.end();
        for (auto it = cache.begin(); it != cache.end(); ++it) {
          if (std::find(blocks.begin(), blocks.begin() + static_cast<ptrdiff_t>(run), it->first) !=
              blocks.begin() + static_cast<ptrdiff_t>(run)) {
            continue;
          }
          const auto leaves_before = [](const Cached& a, const Cached& b) {
            return a.stamp != b.stamp ? a.stamp < b.stamp : a.depth > b.depth;
          };
          if (victim == cache.end() || leaves_before(it->second, victim->second)) victim = it;
        }
        if (victim == cache.end()) continue;
        cache.erase(victim);
      }
      cache[blocks[i]] = {own_stamp, i};
    }
  }
  return hits;
}

// Prompts that branch off one another, so that prefixes are shared.
std::vector<TraceRequest> RandomTrace(std::mt19937_64* random, size_t requests) {
  std::vector<TraceRequest> trace;
  uint64_t next_id = 1;
  for (size_t i = 0; i < requests; ++i) {
    std::vector<uint64_t> blocks;
    if (!trace.empty()) {
      const std::vector<uint64_t>& other = trace[(*random)() % trace.size()].blocks;
      blocks.assign(other.begin(), other.begin() + static_cast<ptrdiff_t>((*random)() % (other.size() + 1)));
    }
    const size_t more = (*random)() % 6 + (blocks.empty() ? 1 : 0);
    for (size_t k = 0; k < more && blocks.size() < 20; ++k) blocks.push_back(next_id++);
    trace.push_back(Request(std::move(blocks)));
  }
  return trace;
}

TEST(LruSimulation, AgreesWithBruteForceOnRandomTraces) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    const std::vector<TraceRequest> trace = RandomTrace(&random, 60);
    const size_t capacity = 1 + random() % 80;
    EXPECT_EQ(Simulate(trace, {.capacity_blocks = capacity}).hit_blocks, BruteForceHits(trace, capacity))
        << "round " << round << ", capacity " << capacity;
  }
}

}  // namespace
}  // namespace quarry::bench
