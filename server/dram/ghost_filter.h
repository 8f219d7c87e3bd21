// Remembers, for a while, why blocks are not there any more.
#ifndef QUARRY_SERVER_DRAM_GHOST_FILTER_H_
#define QUARRY_SERVER_DRAM_GHOST_FILTER_H_

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "quarry/block.h"

namespace quarry::server {

// A table of fingerprints in sets of kWays; in a set the newest push out the oldest. So its
// size is fixed, and it forgets. With 28-bit fingerprints about one in 17 million answers
// speaks of another block; only a miss's cause depends on it. Thread-safe.
class GhostFilter {
 public:
  static constexpr uint32_t kWays = 16;

  // Rounded up to a power of two of whole sets.
  explicit GhostFilter(uint64_t entries);

  // `hash` is BlockIndex::Hash of the block's key.
  void Remember(uint64_t hash, MissCause cause);
  // kNeverStored when nothing is remembered.
  MissCause Recall(uint64_t hash) const;

  uint64_t memory_bytes() const { return table_.size() * sizeof(uint32_t); }

 private:
  static constexpr uint32_t kStripes = 64;
  std::mutex& StripeOf(uint64_t set) const { return stripes_[set % kStripes]; }

  std::vector<uint32_t> table_;  // fingerprint << 4 | cause, newest first in each set; 0: empty
  uint64_t set_mask_;
  mutable std::array<std::mutex, kStripes> stripes_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_DRAM_GHOST_FILTER_H_
