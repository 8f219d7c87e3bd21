// The server's estimate of what more or less memory would hit (server/dram/reuse_distance.h),
// against a simulation of the server's own eviction rule on prompts of production.
#include "server/dram/reuse_distance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "tools/bench/lru_simulation.h"

namespace quarry::bench {
namespace {

using server::ReuseDistance;

constexpr uint64_t kBlockBytes = 4096;

// The finaliser of MurmurHash3.
uint64_t HashOf(uint64_t id, uint64_t seed) {
  uint64_t x = (id + seed * 1'000'003) * 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCD;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53;
  return x ^ (x >> 33);
}

// Each request matches its prompt and puts it.
void Replay(const std::vector<TraceRequest>& trace, uint64_t seed, ReuseDistance* reuse) {
  for (const TraceRequest& request : trace) {
    std::vector<uint64_t> followed;
    std::vector<uint64_t> hashes;
    for (const uint64_t block : request.blocks) {
      hashes.push_back(HashOf(block, seed));
      if (reuse->Follows(hashes.back())) followed.push_back(hashes.back());
    }
    reuse->Use(followed, hashes.size());
    for (const uint64_t hash : hashes) reuse->Store(hash, kBlockBytes);
  }
}

// The greatest difference in hit ratio to the simulation, over caches for these shares of
// the trace's blocks.
double Error(const std::vector<TraceRequest>& trace, double sample_rate, uint32_t max_followed, uint64_t seed) {
  const uint64_t distinct = DistinctBlocks(trace);
  ReuseDistance reuse({distinct * kBlockBytes, sample_rate, max_followed});
  Replay(trace, seed, &reuse);
  double error = 0;
  for (const double share : {0.05, 0.1, 0.25, 0.5, 1.0}) {
    const auto blocks = static_cast<uint64_t>(share * static_cast<double>(distinct));
    const double exact = Simulate(trace, {EvictionRule::kChainLru, blocks}).block_ratio();
    const double estimate = 1 - reuse.MissesAt(blocks * kBlockBytes) / static_cast<double>(reuse.uses());
    std::printf("room for %.2f of %llu blocks: hit ratio %.4f, estimated %.4f\n", share,
                static_cast<unsigned long long>(distinct), exact, estimate);
    error = std::max(error, std::abs(exact - estimate));
  }
  return error;
}

std::vector<TraceRequest> SampleTrace() { return *ReadTrace(QUARRY_TEST_DATA "/conversation_sample.jsonl"); }

// Conversations like those of the production trace (12,031 requests, 24 blocks each in the mean,
// 63 % of the blocks asked for are new, one first block that nearly all share): a request
// begins a conversation or goes on with a recent one.
std::vector<TraceRequest> LikeProduction(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TraceRequest> trace;
  uint64_t next_block = 1;
  while (trace.size() < 12'000) {
    TraceRequest request;
    request.blocks = {0};
    if (!trace.empty() && random() % 100 < 45) {
      const size_t back = random() % std::min<size_t>(trace.size(), 2'000);
      request.blocks = trace[trace.size() - 1 - back].blocks;
      if (request.blocks.size() > 60) request.blocks.resize(60);
    }
    for (uint64_t more = 1 + random() % 29; more > 0; --more) request.blocks.push_back(next_block++);
    request.input_tokens = request.blocks.size() * kTraceBlockTokens;
    trace.push_back(std::move(request));
  }
  return trace;
}

// What is left of the error is that the estimate's order of blocks within a put differs.
TEST(ReuseDistanceOnTrace, FollowingEveryBlockOfTheSampleItIsWithinHalfAPercent) {
  EXPECT_LE(Error(SampleTrace(), 1, 1 << 16, 1), 0.005);
}

TEST(ReuseDistanceOnTrace, AQuarterOfTheSampleIsWithinSixPercent) {
  for (uint64_t seed = 1; seed <= 8; ++seed) EXPECT_LE(Error(SampleTrace(), 0.25, 1024, seed), 0.06) << seed;
}

TEST(ReuseDistanceOnTrace, AsTheServerSamplesATraceLikeProductionsIsWithinFivePercent) {
  const server::ReuseDistanceOptions defaults;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    EXPECT_LE(Error(LikeProduction(seed), defaults.sample_rate, defaults.max_followed, seed), 0.05) << seed;
  }
}

}  // namespace
}  // namespace quarry::bench
