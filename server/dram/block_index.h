// The index: every block the node knows, found by its key.
//
// Sharded by the key's hash: each shard has a mutex, an open-addressed table of
// {block number, hash bits} and its own entries. Entries lie in one reserved region and
// never move, so a block's number stays good as long as the block is pinned; shard and
// place follow from the number. Tables lie in another region and grow in place. In both
// regions the shards take turns, line by line, so that the memory in use is dense and huge
// pages serve it. Hashes are keyed with a random seed per process, so nobody outside can
// choose keys that collide.
#ifndef QUARRY_SERVER_DRAM_BLOCK_INDEX_H_
#define QUARRY_SERVER_DRAM_BLOCK_INDEX_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "quarry/block.h"
#include "server/dram/block_entry.h"
#include "server/dram/reserved_memory.h"

namespace quarry::server {

class BlockIndex;

// Hashes to look up together.
class BlockBatch {
 public:
  BlockBatch(const BlockIndex* index, uint16_t ns) : index_(index), ns_(ns) {}

  // Brings what a lookup needs into the cache: each lookup has two cache misses, and here
  // those of all items overlap. The hashes must outlive the batch, and be as long as those
  // added before. Items are numbered in order of addition.
  void Add(uint8_t group, HashSpan hashes);
  size_t size() const { return items_.size(); }
  // BlockIndex::Hash of the item.
  uint64_t hash(size_t item) const { return items_[item].hash; }

 private:
  friend class BlockIndex;
  struct Item {
    uint64_t hash;
    const char* key;
    uint32_t guess;  // the block, most likely; kNoBlock: none
    uint8_t group;
  };
  void Guess(size_t item);
  // Sorts items by index shard. Idempotent.
  void Arrange();
  BlockKey KeyOf(uint32_t item) const {
    return {ns_, items_[item].group, absl::string_view(items_[item].key, hash_bytes_)};
  }

  const BlockIndex* const index_;
  const uint16_t ns_;
  uint32_t hash_bytes_ = 0;
  std::vector<Item> items_;
  std::vector<uint32_t> order_;       // items by shard
  std::vector<uint32_t> shard_ends_;  // where each shard's run in order_ ends
};

class BlockIndex {
 public:
  static constexpr uint32_t kMaxShards = 4096;

  // `shards`: a power of two up to kMaxShards. InvalidArgument names the field.
  static absl::StatusOr<std::unique_ptr<BlockIndex>> Create(uint32_t shards, uint64_t max_blocks);
  ~BlockIndex();

  uint64_t Hash(const BlockKey& key) const;
  uint32_t shards() const { return shard_count_; }
  uint32_t ShardOf(uint64_t hash) const { return static_cast<uint32_t>(hash >> 32) & shard_mask_; }
  uint32_t ShardOfBlock(uint32_t block) const { return block & shard_mask_; }
  std::mutex& mutex(uint32_t shard) const { return shards_[shard].mutex; }

  BlockEntry& entry(uint32_t block) const { return entries_[block]; }
  // When its first shard was stored, as the store counts time. Guarded as entries are; beside
  // them, because lookups need it only where blocks expire.
  uint32_t& stored_at(uint32_t block) const { return sides_[block].stored_at; }
  // The number of each shard's record in the SSD tier, or kNoRecord.
  absl::Span<uint32_t> records(uint32_t block) const {
    BlockEntry& entry = entries_[block];
    if (!entry.many) return absl::MakeSpan(&sides_[block].record, 1);
    return absl::MakeSpan(entry.set + 1 + entry.set[0], entry.set[0]);
  }

  // The calls below need the shard's mutex held.
  uint32_t Find(uint64_t hash, const BlockKey& key) const;
  // The key is not there yet. No shard of the block is there. kNoBlock: the index is full.
  uint32_t Insert(uint64_t hash, const BlockKey& key, uint32_t block_shards);
  // Not found any more: the entry stays, as `removed`.
  void Unlink(uint32_t block);
  // After Unlink, when nothing refers to the number any more.
  void Free(uint32_t block);
  uint64_t HashOf(uint32_t block) const;
  // The numbers ever given in a shard: BlockOf(shard, i) for i below EntriesOf(shard). Those
  // whose hash_bytes is 0 are free.
  uint32_t EntriesOf(uint32_t shard) const { return shards_[shard].entries; }
  uint32_t BlockOf(uint32_t shard, uint32_t entry) const { return entry << shard_bits_ | shard; }

  // visit(item, block or kNoBlock) for every item, with the mutex of its shard held; items
  // of one shard follow each other.
  template <typename Visitor>
  void Visit(BlockBatch* batch, Visitor&& visit);
  // visit(item) in the same way, without looking anything up.
  template <typename Visitor>
  void VisitShards(BlockBatch* batch, Visitor&& visit);

  // All memory of the index.
  uint64_t memory_bytes() const;

 private:
  friend class BlockBatch;

  struct Bucket {
    uint32_t block = kNoBlock;  // kNoBlock: empty
    uint32_t bits = 0;          // low half of the hash: the home place, and a filter before the key
  };
  // A bucket as it lies in the table: the block inverted, so that zeroed memory is empty.
  // Atomic for prefetches, which look without the mutex.
  class PackedBucket {
   public:
    Bucket load() const {
      const uint64_t packed = packed_.load(std::memory_order_relaxed);
      return {~static_cast<uint32_t>(packed >> 32), static_cast<uint32_t>(packed)};
    }
    void store(Bucket bucket) {
      packed_.store(uint64_t{~bucket.block} << 32 | (bucket.block == kNoBlock ? 0 : bucket.bits),
                    std::memory_order_relaxed);
    }

   private:
    std::atomic<uint64_t> packed_;
  };
  static constexpr uint32_t kBucketsPerLine = 64 / sizeof(PackedBucket);
  struct Side {
    uint32_t stored_at;
    uint32_t record;  // of the only shard
  };
  struct alignas(64) Shard {
    mutable std::mutex mutex;
    // Of the table's size, a power of two. Atomic as the buckets are.
    std::atomic<uint32_t> mask;
    uint32_t linked = 0;
    uint32_t entries = 0;  // ever used; their numbers are entry << shard bits | shard
    uint32_t free_head = kNoBlock;
    uint64_t side_bytes = 0;  // slot sets and long hashes
  };

  BlockIndex(uint32_t shards, uint32_t blocks_per_shard, ReservedMemory entries, ReservedMemory sides,
             ReservedMemory tables);

  uint32_t MaskOf(uint32_t shard) const { return shards_[shard].mask.load(std::memory_order_relaxed); }
  PackedBucket& BucketAt(uint32_t shard, uint32_t place) const {
    const uint64_t line = uint64_t{place / kBucketsPerLine} << shard_bits_ | shard;
    return tables_[line * kBucketsPerLine + place % kBucketsPerLine];
  }
  void PrefetchBucket(uint64_t hash) const {
    const uint32_t shard = ShardOf(hash);
    __builtin_prefetch(&BucketAt(shard, static_cast<uint32_t>(hash) & MaskOf(shard)));
  }
  // The first block with the hash's bits, which is fetched. Without the mutex: a guess, right
  // nearly always.
  uint32_t Guess(uint64_t hash) const;
  // Whether the guess is right: an entry of that key which is not unlinked. With the mutex.
  bool Confirms(uint32_t guess, const BlockKey& key) const {
    return guess != kNoBlock && entries_[guess].Is(key) && entries_[guess].removed == 0;
  }
  uint32_t NewEntry(Shard& shard, uint32_t shard_number);
  void Grow(uint32_t shard);
  void Place(uint32_t shard, Bucket bucket);

  const uint32_t shard_count_;
  const uint32_t shard_mask_;
  const int shard_bits_;
  const uint32_t blocks_per_shard_;
  const uint64_t seed_;
  const ReservedMemory entry_memory_;
  const ReservedMemory side_memory_;
  const ReservedMemory table_memory_;
  BlockEntry* const entries_;
  Side* const sides_;
  PackedBucket* const tables_;
  const std::unique_ptr<Shard[]> shards_;
};

template <typename Visitor>
void BlockIndex::Visit(BlockBatch* batch, Visitor&& visit) {
  VisitShards(batch, [&](uint32_t item) {
    const BlockKey key = batch->KeyOf(item);
    const uint32_t guess = batch->items_[item].guess;
    visit(item, Confirms(guess, key) ? guess : Find(batch->items_[item].hash, key));
  });
}

template <typename Visitor>
void BlockIndex::VisitShards(BlockBatch* batch, Visitor&& visit) {
  batch->Arrange();
  uint32_t i = 0;
  for (uint32_t shard = 0; shard < shard_count_; ++shard) {
    const uint32_t end = batch->shard_ends_[shard];
    if (i == end) continue;
    std::lock_guard<std::mutex> lock(shards_[shard].mutex);
    for (; i < end; ++i) visit(batch->order_[i]);
  }
}

}  // namespace quarry::server

#endif  // QUARRY_SERVER_DRAM_BLOCK_INDEX_H_
