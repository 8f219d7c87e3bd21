// What a cache of a given size would hit on a trace, without a server: the yardstick for
// `quarry-bench replay`.
#ifndef QUARRY_TOOLS_BENCH_LRU_SIMULATION_H_
#define QUARRY_TOOLS_BENCH_LRU_SIMULATION_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tools/bench/trace.h"

namespace quarry::bench {

enum class EvictionRule : uint8_t {
  // Every touch makes a block the newest; a request touches its blocks from the tail to
  // the root.
  kPlainLru,
  // The server's (server/dram/chain_lru.h): a request gives the blocks that it hits one
  // new stamp, an inserted block takes its parent's, blocks leave by stamp, and of one
  // stamp the deepest leaves first.
  kChainLru,
};

struct SimulationOptions {
  EvictionRule rule = EvictionRule::kChainLru;
  uint64_t capacity_blocks = 0;  // 0: without bound
};

struct HitCounts {
  uint64_t blocks = 0;
  uint64_t hit_blocks = 0;
  uint64_t tokens = 0;
  uint64_t hit_tokens = 0;
  double block_ratio() const { return blocks == 0 ? 0 : static_cast<double>(hit_blocks) / static_cast<double>(blocks); }
  double token_ratio() const { return tokens == 0 ? 0 : static_cast<double>(hit_tokens) / static_cast<double>(tokens); }
};

// One request after the other: the unbroken run of present blocks from the start is hit
// and stays until the request ends; then the blocks that were missing are inserted in
// order, each for a victim when the cache is full.
HitCounts Simulate(absl::Span<const TraceRequest> trace, const SimulationOptions& options);

uint64_t DistinctBlocks(absl::Span<const TraceRequest> trace);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_LRU_SIMULATION_H_
