#include "server/dram/block_index.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "quarry/model_spec.h"

namespace quarry::server {
namespace {

constexpr uint32_t kFirstTableSize = 16;
// A table is at most 3/4 full.
constexpr uint64_t kFullNumerator = 3;
constexpr uint64_t kFullDenominator = 4;
// Lookups between the fetch of a table's line and its use.
constexpr size_t kPrefetchDistance = 16;
constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;

uint64_t RandomSeed() {
  const std::string bytes = SecureRandomBytes(sizeof(uint64_t));
  uint64_t seed;
  std::memcpy(&seed, bytes.data(), sizeof seed);
  return seed;
}

uint64_t SideBytes(const BlockEntry& entry) {
  uint64_t bytes = 0;
  if (entry.many) bytes += (1 + 2 * entry.set[0]) * sizeof(uint32_t) + kAllocationOverhead;
  if (entry.hash_bytes > BlockEntry::kInlineHashBytes) {
    bytes += entry.hash_bytes - BlockEntry::kHeadBytes + kAllocationOverhead;
  }
  return bytes;
}

}  // namespace

void BlockBatch::Add(uint8_t group, HashSpan hashes) {
  const size_t count = hashes.size();
  const char* key = hashes.bytes().data();
  if (count != 0) hash_bytes_ = hashes.hash_bytes();
  const size_t first = items_.size();
  items_.reserve(first + count);
  for (size_t i = 0; i < count; ++i, key += hash_bytes_) {
    const uint64_t hash = index_->Hash({ns_, group, absl::string_view(key, hash_bytes_)});
    items_.push_back({hash, key, kNoBlock, group});
    index_->PrefetchBucket(hash);
    if (i >= kPrefetchDistance) Guess(first + i - kPrefetchDistance);
  }
  for (size_t i = count - std::min(count, kPrefetchDistance); i < count; ++i) Guess(first + i);
  order_.clear();
}

void BlockBatch::Guess(size_t item) { items_[item].guess = index_->Guess(items_[item].hash); }

void BlockBatch::Arrange() {
  if (order_.size() == items_.size() && !shard_ends_.empty()) return;
  // A counting sort.
  const uint32_t shards = index_->shards();
  shard_ends_.assign(shards, 0);
  for (const Item& item : items_) ++shard_ends_[index_->ShardOf(item.hash)];
  uint32_t begin = 0;
  for (uint32_t& end : shard_ends_) begin += std::exchange(end, begin);
  order_.resize(items_.size());
  for (uint32_t i = 0; i < items_.size(); ++i) order_[shard_ends_[index_->ShardOf(items_[i].hash)]++] = i;
}

absl::StatusOr<std::unique_ptr<BlockIndex>> BlockIndex::Create(uint32_t shards, uint64_t max_blocks) {
  if (!std::has_single_bit(shards) || shards > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("index_shards: ", shards, " is not a power of two from 1 to ", kMaxShards));
  }
  // Keys fall on shards by chance: room for twice the mean, and for small means.
  constexpr uint64_t kSpare = 1024;
  const uint64_t per_shard = 2 * (max_blocks / shards) + kSpare;
  if (per_shard * shards >= kNoBlock) {
    return absl::InvalidArgumentError(absl::StrCat("an index of ", max_blocks, " blocks is too large"));
  }
  auto entries = ReservedMemory::Create(per_shard * shards * sizeof(BlockEntry), ReservedMemory::Pages::kHuge);
  if (!entries.ok()) return entries.status();
  auto sides = ReservedMemory::Create(per_shard * shards * sizeof(Side), ReservedMemory::Pages::kHuge);
  if (!sides.ok()) return sides.status();
  const uint64_t table_size = std::bit_ceil(per_shard * kFullDenominator / kFullNumerator + 1);
  auto tables = ReservedMemory::Create(table_size * shards * sizeof(PackedBucket), ReservedMemory::Pages::kHuge);
  if (!tables.ok()) return tables.status();
  return std::unique_ptr<BlockIndex>(new BlockIndex(shards, static_cast<uint32_t>(per_shard), *std::move(entries),
                                                    *std::move(sides), *std::move(tables)));
}

BlockIndex::BlockIndex(uint32_t shards, uint32_t blocks_per_shard, ReservedMemory entries, ReservedMemory sides,
                       ReservedMemory tables)
    : shard_count_(shards),
      shard_mask_(shards - 1),
      shard_bits_(std::countr_zero(shards)),
      blocks_per_shard_(blocks_per_shard),
      seed_(RandomSeed()),
      entry_memory_(std::move(entries)),
      side_memory_(std::move(sides)),
      table_memory_(std::move(tables)),
      entries_(reinterpret_cast<BlockEntry*>(entry_memory_.data())),
      sides_(reinterpret_cast<Side*>(side_memory_.data())),
      tables_(reinterpret_cast<PackedBucket*>(table_memory_.data())),
      shards_(new Shard[shards]) {
  for (uint32_t i = 0; i < shards; ++i) shards_[i].mask.store(kFirstTableSize - 1, std::memory_order_relaxed);
}

BlockIndex::~BlockIndex() {
  for (uint32_t i = 0; i < shard_count_; ++i) {
    for (uint32_t k = 0; k < shards_[i].entries; ++k) {
      BlockEntry& block = entries_[k << shard_bits_ | i];
      if (block.hash_bytes == 0) continue;
      if (block.many) delete[] block.set;
      if (block.hash_bytes > BlockEntry::kInlineHashBytes) delete[] block.split.tail;
    }
  }
}

uint64_t BlockIndex::Hash(const BlockKey& key) const {
  const uint64_t scope = (uint64_t{key.ns} << 8 | key.group) * kGoldenRatio;
  return XXH3_64bits_withSeed(key.hash.data(), key.hash.size(), seed_ ^ scope);
}

uint64_t BlockIndex::HashOf(uint32_t block) const {
  char buffer[kMaxHashBytes];
  const BlockEntry& e = entries_[block];
  return Hash({e.ns, e.group, e.Hash(buffer)});
}

uint32_t BlockIndex::Guess(uint64_t hash) const {
  const uint32_t shard = ShardOf(hash);
  const uint32_t mask = MaskOf(shard);
  const uint32_t bits = static_cast<uint32_t>(hash);
  // Bounded, as the table may change under it.
  for (uint32_t i = bits, end = bits + kBucketsPerLine; i != end; ++i) {
    const Bucket bucket = BucketAt(shard, i & mask).load();
    if (bucket.block == kNoBlock) break;
    if (bucket.bits == bits) {
      __builtin_prefetch(&entries_[bucket.block], 1);
      return bucket.block;
    }
  }
  return kNoBlock;
}

uint32_t BlockIndex::Find(uint64_t hash, const BlockKey& key) const {
  const uint32_t shard = ShardOf(hash);
  const uint32_t mask = MaskOf(shard);
  const uint32_t bits = static_cast<uint32_t>(hash);
  for (uint32_t i = bits & mask;; i = (i + 1) & mask) {
    const Bucket bucket = BucketAt(shard, i).load();
    if (bucket.block == kNoBlock) return kNoBlock;
    if (bucket.bits == bits && entries_[bucket.block].Is(key)) return bucket.block;
  }
}

uint32_t BlockIndex::NewEntry(Shard& shard, uint32_t shard_number) {
  if (shard.free_head != kNoBlock) {
    const uint32_t block = shard.free_head;
    shard.free_head = entries_[block].next_free;
    return block;
  }
  if (shard.entries == blocks_per_shard_) return kNoBlock;
  return shard.entries++ << shard_bits_ | shard_number;
}

uint32_t BlockIndex::Insert(uint64_t hash, const BlockKey& key, uint32_t block_shards) {
  const uint32_t shard_number = ShardOf(hash);
  Shard& shard = shards_[shard_number];
  const uint32_t block = NewEntry(shard, shard_number);
  if (block == kNoBlock) return kNoBlock;

  BlockEntry& e = entries_[block];
  e.pins = 0;
  e.leases = 0;
  e.ns = key.ns;
  e.hash_bytes = key.hash.size() & 0x7f;
  e.used = 0;
  e.group = key.group & 0xf;
  e.many = block_shards != 1;
  e.parked = 0;
  e.removed = 0;
  e.no_ssd = 0;
  if (e.many) {
    e.set = new uint32_t[1 + 2 * block_shards];
    e.set[0] = block_shards;
  }
  std::fill(e.slots().begin(), e.slots().end(), kNoSlot);
  std::fill(records(block).begin(), records(block).end(), kNoRecord);
  if (key.hash.size() <= BlockEntry::kInlineHashBytes) {
    std::memcpy(e.hash, key.hash.data(), key.hash.size());
  } else {
    const size_t tail_bytes = key.hash.size() - BlockEntry::kHeadBytes;
    e.split.tail = new char[tail_bytes];
    std::memcpy(e.split.head, key.hash.data(), BlockEntry::kHeadBytes);
    std::memcpy(e.split.tail, key.hash.data() + BlockEntry::kHeadBytes, tail_bytes);
  }
  shard.side_bytes += SideBytes(e);

  if (++shard.linked > (MaskOf(shard_number) + uint64_t{1}) * kFullNumerator / kFullDenominator) Grow(shard_number);
  Place(shard_number, {block, static_cast<uint32_t>(hash)});
  return block;
}

void BlockIndex::Unlink(uint32_t block) {
  const uint32_t shard = ShardOfBlock(block);
  const uint32_t mask = MaskOf(shard);
  uint32_t hole = static_cast<uint32_t>(HashOf(block)) & mask;
  while (BucketAt(shard, hole).load().block != block) hole = (hole + 1) & mask;
  // Close the gap: move back whatever would no longer be reached across it.
  for (uint32_t i = (hole + 1) & mask;; i = (i + 1) & mask) {
    const Bucket bucket = BucketAt(shard, i).load();
    if (bucket.block == kNoBlock) break;
    const uint32_t home = bucket.bits & mask;
    if (((i - home) & mask) >= ((i - hole) & mask)) {
      BucketAt(shard, hole).store(bucket);
      hole = i;
    }
  }
  BucketAt(shard, hole).store(Bucket());
  --shards_[shard].linked;
  entries_[block].removed = 1;
}

void BlockIndex::Free(uint32_t block) {
  Shard& shard = shards_[ShardOfBlock(block)];
  BlockEntry& e = entries_[block];
  shard.side_bytes -= SideBytes(e);
  if (e.many) delete[] e.set;
  if (e.hash_bytes > BlockEntry::kInlineHashBytes) delete[] e.split.tail;
  e.hash_bytes = 0;
  e.many = 0;
  e.parked = 0;
  e.removed = 0;
  e.next_free = shard.free_head;
  shard.free_head = block;
}

void BlockIndex::Place(uint32_t shard, Bucket bucket) {
  const uint32_t mask = MaskOf(shard);
  uint32_t i = bucket.bits & mask;
  while (BucketAt(shard, i).load().block != kNoBlock) i = (i + 1) & mask;
  BucketAt(shard, i).store(bucket);
}

void BlockIndex::Grow(uint32_t shard) {
  const uint32_t mask = MaskOf(shard);
  std::vector<Bucket> kept;
  kept.reserve(shards_[shard].linked);
  for (uint32_t i = 0; i <= mask; ++i) {
    const Bucket bucket = BucketAt(shard, i).load();
    if (bucket.block == kNoBlock) continue;
    kept.push_back(bucket);
    BucketAt(shard, i).store(Bucket());
  }
  shards_[shard].mask.store(2 * mask + 1, std::memory_order_relaxed);
  for (const Bucket& bucket : kept) Place(shard, bucket);
}

uint64_t BlockIndex::memory_bytes() const {
  uint64_t bytes = sizeof(Shard) * shard_count_;
  // Shards take turns in memory, so it is touched as far as the fullest shard goes.
  uint64_t most_entries = 0;
  uint64_t largest_table = 0;
  for (uint32_t i = 0; i < shard_count_; ++i) {
    std::lock_guard<std::mutex> lock(shards_[i].mutex);
    bytes += shards_[i].side_bytes;
    most_entries = std::max<uint64_t>(most_entries, shards_[i].entries);
    largest_table = std::max(largest_table, MaskOf(i) + uint64_t{1});
  }
  return bytes +
         shard_count_ * (most_entries * (sizeof(BlockEntry) + sizeof(Side)) + largest_table * sizeof(PackedBucket));
}

}  // namespace quarry::server
