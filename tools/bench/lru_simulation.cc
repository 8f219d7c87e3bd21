#include "tools/bench/lru_simulation.h"

#include <limits>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

namespace quarry::bench {
namespace {

// The cached blocks in the order in which they leave.
class SimulatedCache {
 public:
  explicit SimulatedCache(uint64_t capacity)
      : capacity_(capacity == 0 ? std::numeric_limits<uint64_t>::max() : capacity) {}

  bool Has(uint64_t block) const { return places_.count(block) != 0; }
  uint64_t StampOf(uint64_t block) const { return places_.at(block).stamp; }

  // Blocks touched from here on cannot leave until the next call.
  void BeginRequest() { pinned_.clear(); }
  void Pin(uint64_t block) { pinned_.insert(block); }

  void Touch(uint64_t block, uint64_t stamp) {
    Place& place = places_.at(block);
    order_.erase({place.stamp, Shallowness(place.depth), block});
    place.stamp = stamp;
    order_.insert({place.stamp, Shallowness(place.depth), block});
  }

  // Nothing happens when all that is cached is pinned.
  void Insert(uint64_t block, uint64_t depth, uint64_t stamp) {
    if (places_.size() >= capacity_ && !Evict()) return;
    places_[block] = {stamp, depth};
    order_.insert({stamp, Shallowness(depth), block});
  }

 private:
  struct Place {
    uint64_t stamp = 0;
    uint64_t depth = 0;
  };

  static uint64_t Shallowness(uint64_t depth) { return std::numeric_limits<uint64_t>::max() - depth; }

  bool Evict() {
    for (auto it = order_.begin(); it != order_.end(); ++it) {
      const uint64_t block = std::get<2>(*it);
      if (pinned_.count(block) != 0) continue;
      order_.erase(it);
      places_.erase(block);
      return true;
    }
    return false;
  }

  const uint64_t capacity_;
  std::unordered_map<uint64_t, Place> places_;
  std::set<std::tuple<uint64_t, uint64_t, uint64_t>> order_;  // stamp, shallowness, block
  std::unordered_set<uint64_t> pinned_;
};

uint64_t UsableRun(const SimulatedCache& cache, const TraceRequest& request) {
  uint64_t run = 0;
  while (run < request.blocks.size() && cache.Has(request.blocks[run])) ++run;
  return run;
}

void ServeByChain(SimulatedCache* cache, const TraceRequest& request, uint64_t run, uint64_t* next_stamp) {
  const std::vector<uint64_t>& blocks = request.blocks;
  const uint64_t match_stamp = (*next_stamp)++;
  for (uint64_t i = 0; i < run; ++i) cache->Touch(blocks[i], match_stamp);
  for (uint64_t i = run; i < blocks.size(); ++i) {
    if (cache->Has(blocks[i])) continue;
    const bool has_parent = i > 0 && cache->Has(blocks[i - 1]);
    cache->Insert(blocks[i], i, has_parent ? cache->StampOf(blocks[i - 1]) : (*next_stamp)++);
  }
}

void ServeByBlock(SimulatedCache* cache, const TraceRequest& request, uint64_t* next_stamp) {
  for (uint64_t i = request.blocks.size(); i-- > 0;) {
    const uint64_t block = request.blocks[i];
    cache->Has(block) ? cache->Touch(block, (*next_stamp)++) : cache->Insert(block, i, (*next_stamp)++);
  }
}

}  // namespace

HitCounts Simulate(absl::Span<const TraceRequest> trace, const SimulationOptions& options) {
  SimulatedCache cache(options.capacity_blocks);
  HitCounts counts;
  uint64_t next_stamp = 1;
  for (const TraceRequest& request : trace) {
    const uint64_t run = UsableRun(cache, request);
    counts.blocks += request.blocks.size();
    counts.hit_blocks += run;
    counts.tokens += request.input_tokens;
    counts.hit_tokens += TokensOf(request, run);
    cache.BeginRequest();
    for (uint64_t i = 0; i < run; ++i) cache.Pin(request.blocks[i]);
    if (options.rule == EvictionRule::kChainLru) {
      ServeByChain(&cache, request, run, &next_stamp);
    } else {
      ServeByBlock(&cache, request, &next_stamp);
    }
  }
  return counts;
}

uint64_t DistinctBlocks(absl::Span<const TraceRequest> trace) {
  std::unordered_set<uint64_t> ids;
  for (const TraceRequest& request : trace) ids.insert(request.blocks.begin(), request.blocks.end());
  return ids.size();
}

}  // namespace quarry::bench
