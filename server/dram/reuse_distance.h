// What an LRU cache of another size would hit, estimated while the server runs.
//
// After "Efficient MRC Construction with SHARDS" (C. Waldspurger, N. Park, A. Garthwaite,
// I. Ahmad, USENIX FAST 2015). Only blocks whose hash lies below a threshold are followed:
// that is a random sample of blocks, and of each all its uses. The reuse distance of a use
// is the bytes of other blocks that were used since the block's last one, here measured
// among the followed blocks and divided by the sample rate; an LRU that holds so much, and
// the block, hits. When more blocks would be followed than there is room for, the threshold
// falls ("fixed-size SHARDS") and those above it are forgotten.
//
// Misses are what is estimated: every use of a followed block that misses stands for
// 1 / sample rate misses, and hits are the uses that are left, all of which are counted. So
// a block that everyone shares, which always hits, does not matter: whether it happens to be
// followed would otherwise decide the result ("SHARDS-adj" there).
//
// ERROR. Following every block, the result is an LRU's. As the server samples, over the 12,031
// requests of a production trace, the hit ratio was off by 0.014 to 0.018 (root mean square over
// seeds, for caches of 5 to 100 % of its blocks; at most 0.036); it falls with the root of the
// number of requests. A cache that holds few followed blocks is told from another only roughly.
#ifndef QUARRY_SERVER_DRAM_REUSE_DISTANCE_H_
#define QUARRY_SERVER_DRAM_REUSE_DISTANCE_H_

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace quarry::server {

struct ReuseDistanceOptions {
  // The largest cache that is asked about. What an LRU of that size would have evicted is
  // not followed any longer.
  uint64_t max_capacity_bytes = 0;
  // The share of blocks that is followed at first, in 0..1: what a use costs follows from it.
  double sample_rate = 1.0 / 128;
  uint32_t max_followed = 4096;  // blocks, at least 8; each costs at most kBytesPerBlock
};

// Thread-safe. A block that is not followed costs one comparison and no lock.
//
// `hash` is BlockIndex::Hash of the block's key: 64 bits, each equally likely.
class ReuseDistance {
 public:
  static constexpr uint64_t kBytesPerBlock = 96;

  explicit ReuseDistance(const ReuseDistanceOptions& options);

  // Blocks with a hash below it are followed. It only ever falls.
  uint64_t threshold() const { return threshold_.load(std::memory_order_relaxed); }
  bool Follows(uint64_t hash) const { return hash < threshold(); }

  // A match asked for `uses` blocks; those of them that are followed are given, root first.
  // A block hits if an LRU has it, whatever of its chain is missing. All that are there are
  // used together, the root last; one that a small cache would miss is taken to be put again.
  // A block that no cache has is not stored by being asked for.
  void Use(absl::Span<const uint64_t> followed, uint64_t uses);
  // A block of so many bytes (at least 1) is put, or used other than by a match: the newest
  // from now on, and no use that is counted.
  void Store(uint64_t hash, uint64_t bytes) {
    if (Follows(hash)) StoreFollowed(hash, bytes);
  }
  void Touch(uint64_t hash) {
    if (Follows(hash)) StoreFollowed(hash, 0);
  }
  // It was removed, whatever the size of the cache.
  void Forget(uint64_t hash) {
    if (Follows(hash)) ForgetFollowed(hash);
  }

  // Both only ever grow, up to rounding.
  uint64_t uses() const { return uses_.load(std::memory_order_relaxed); }
  // What an LRU of so many bytes would have missed of these. The capacity is rounded up to
  // 1/kSteps of max_capacity_bytes, and beyond that bound taken as the bound.
  double MissesAt(uint64_t capacity_bytes) const;

  uint64_t followed() const;
  uint64_t memory_bytes() const;

  static constexpr uint64_t kSteps = 512;

 private:
  // A followed block, at its place in the order of use: newer ones come later.
  struct Place {
    uint64_t hash = 0;
    uint64_t bytes = 0;  // 0: the block has moved on
  };

  void StoreFollowed(uint64_t hash, uint64_t bytes);
  void ForgetFollowed(uint64_t hash);

  // With the mutex held.
  // How many blocks one followed block stands for.
  double WeightLocked() const;
  // The least LRU, in steps, that would have the block; beyond kSteps: none that is asked about.
  uint64_t StepsNeededLocked(uint64_t hash) const;
  // The block moves to the newest place.
  void RenewLocked(uint64_t hash, uint64_t bytes);
  void VacateLocked(uint32_t place);
  // Forgets what the largest LRU would have evicted.
  void TrimLocked();
  void LowerThresholdLocked();
  // Closes the gaps between places and leaves out what is not followed any longer.
  void RebuildLocked();
  void AddBytesLocked(uint32_t place, uint64_t bytes);
  uint64_t BytesBeforeLocked(uint32_t place) const;

  const ReuseDistanceOptions options_;
  const uint64_t step_bytes_;
  std::atomic<uint64_t> threshold_;
  std::atomic<uint64_t> uses_{0};

  mutable std::mutex mutex_;
  // The rest is guarded by mutex_.
  std::vector<Place> places_;
  std::vector<uint64_t> sums_;  // Fenwick tree over the places' bytes
  uint32_t next_ = 0;           // the first place not yet used
  uint32_t oldest_ = 0;         // no block is at a place before it
  uint64_t bytes_ = 0;          // of all followed blocks
  absl::flat_hash_map<uint64_t, uint32_t> by_hash_;
  std::vector<double> uses_by_steps_;  // uses, weighted, by StepsNeededLocked
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_DRAM_REUSE_DISTANCE_H_
