// LRU over chains: the tail of a chain leaves before its root.
//
// THE ORDER, exactly. Every block carries a stamp and a depth (the token at which it ends).
// Stamps are taken from one increasing counter:
//   - a Touch of two or more blocks gives all of them one new stamp;
//   - a block that is inserted behind a parent that is there gets the parent's stamp, unless
//     its own is as new already. If the parent is a lone block, parent and block first get
//     one new stamp together;
//   - a lone block (inserted without a parent, touched by itself, or deferred) gets a new
//     stamp of its own.
// Blocks leave by (stamp ascending, depth descending); of equal stamp and depth the one
// that got its stamp last leaves first. A block that could not be evicted when its turn
// came keeps stamp and depth, and is next when it can be.
//
// So for one client after the other, each matching a prompt and then putting what was
// missing in order: blocks leave by (last request that used or put them ascending, depth
// descending), and a block never leaves before its children.
//
// HOW. A stamp owns a bucket: the numbers of its blocks in depth order. The entry holds the
// stamp; a record in a bucket counts only while it is the entry's newest, so a use writes
// one word an entry and appends to one array, and no entry knows its neighbours. Stale
// records go when they are met, or when they outnumber the live ones, a few for each use.
// Lone blocks in a row share a bucket, each with its stamp, first in first out.
#ifndef QUARRY_SERVER_DRAM_CHAIN_LRU_H_
#define QUARRY_SERVER_DRAM_CHAIN_LRU_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/container/btree_map.h"
#include "server/dram/block_index.h"
#include "server/dram/eviction_policy.h"

namespace quarry::server {

class ChainLru : public EvictionPolicy {
 public:
  // `index` outlives the policy; only stamp and depth of its entries are used.
  explicit ChainLru(const BlockIndex* index) : index_(index) {}

  void Touch(absl::Span<const uint32_t> chain) override;
  void Insert(uint32_t block, uint32_t depth, uint32_t parent) override;
  void Admit(uint32_t block) override;
  void SetDepth(uint32_t block, uint32_t depth) override;
  uint32_t Pop() override;
  bool ForgetPopped(uint32_t block) override;
  void Return(absl::Span<const uint32_t> blocks) override;
  void Defer(uint32_t block) override;
  void Forget(uint32_t block) override;
  uint32_t DepthOf(uint32_t block) const override;
  void Upkeep() override;
  uint64_t size() const override;
  uint64_t memory_bytes() const override;

  // Records kept, stale ones included.
  uint64_t records() const;

 private:
  struct Bucket {
    // A chain's: the blocks in depth order, popped from the end. A lone bucket's: pairs of
    // block and how many stamps after the bucket's own its stamp is, popped from `head`.
    std::vector<uint32_t> words;
    uint32_t head = 0;
  };
  using Buckets = absl::btree_map<uint64_t, Bucket>;  // by the first stamp in it

  BlockEntry& Entry(uint32_t block) const { return index_->entry(block); }
  bool IsLiveLocked(uint32_t block, uint64_t stamp) const;
  void SetStampLocked(uint32_t block, uint64_t stamp);
  uint64_t NewStampLocked(bool lone);
  void AppendLoneLocked(uint32_t block);
  void NewChainLocked(absl::Span<const uint32_t> blocks);
  void JoinChainLocked(uint64_t stamp, uint32_t block);
  void ReturnLoneLocked(uint64_t stamp, uint32_t block);
  void DropNewestLoneLocked(uint32_t block);
  void ReserveLocked(Bucket& bucket, size_t words);
  void ShrinkLocked(Bucket& bucket);
  void EraseLocked(Buckets::iterator bucket);
  // Drops stale records; returns how many records it looked at.
  size_t CompactBucketLocked(uint64_t stamp, Bucket& bucket);
  void CompactLocked(size_t added);

  const BlockIndex* const index_;
  mutable std::mutex mutex_;
  Buckets buckets_;
  uint64_t last_stamp_ = 0;
  uint64_t live_ = 0;
  uint64_t records_ = 0;
  uint64_t compacted_up_to_ = 0;  // stamp from which compaction goes on
  size_t touched_ = 0;            // records added by touches since the last Upkeep
  uint64_t bucket_bytes_ = 0;     // of the arrays
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_DRAM_CHAIN_LRU_H_
