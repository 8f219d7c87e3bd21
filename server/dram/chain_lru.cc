#include "server/dram/chain_lru.h"

#include <algorithm>

namespace quarry {
namespace {

// A stamp is counter << 1 | lone; an entry's word has one bit more: whether a record of it
// is in the bucket, so that Pop would find it.
constexpr uint64_t kLoneBit = 1;
constexpr uint64_t kQueuedBit = uint64_t{1} << 63;
constexpr uint64_t kStampMask = ~kQueuedBit;

bool IsLone(uint64_t stamp) { return (stamp & kLoneBit) != 0; }

// Bounds what an insertion in the middle moves.
constexpr size_t kSortWindow = 4096;
constexpr size_t kMaxLoneBucket = 4096;
// Compaction begins when records exceed this multiple of live ones, and looks at so many
// records for one that is added: enough to be done before they double again.
constexpr uint64_t kMaxRecordsPerLive = 4;
constexpr uint64_t kCompactAlways = 1024;
constexpr size_t kLookedAtPerAdded = 2;
constexpr size_t kPrefetchAhead = 8;
constexpr uint64_t kAllocationOverhead = 16;
constexpr uint64_t kTreeOverhead = 8;  // of a B-tree node's spare room, per bucket

}  // namespace

bool ChainLru::IsLiveLocked(uint32_t block, uint64_t stamp) const {
  return Entry(block).stamp == (stamp | kQueuedBit);
}

void ChainLru::SetStampLocked(uint32_t block, uint64_t stamp) {
  BlockEntry& entry = Entry(block);
  if ((entry.stamp & kQueuedBit) == 0) ++live_;
  entry.stamp = stamp | kQueuedBit;
}

uint64_t ChainLru::NewStampLocked(bool lone) {
  last_stamp_ += 2;
  return last_stamp_ | (lone ? kLoneBit : 0);
}

void ChainLru::ReserveLocked(Bucket& bucket, size_t blocks) {
  const size_t before = bucket.blocks.capacity();
  if (blocks <= before) return;
  bucket.blocks.reserve(std::max(blocks, before + before / 2));
  bucket_bytes_ += (bucket.blocks.capacity() - before) * sizeof(uint32_t) + (before == 0 ? kAllocationOverhead : 0);
}

void ChainLru::ShrinkLocked(Bucket& bucket) {
  const size_t before = bucket.blocks.capacity();
  bucket.blocks.shrink_to_fit();
  bucket_bytes_ -= (before - bucket.blocks.capacity()) * sizeof(uint32_t);
}

void ChainLru::EraseLocked(Buckets::iterator it) {
  const size_t capacity = it->second.blocks.capacity();
  if (capacity != 0) bucket_bytes_ -= capacity * sizeof(uint32_t) + kAllocationOverhead;
  records_ -= it->second.blocks.size() - it->second.head;
  buckets_.erase(it);
}

void ChainLru::AppendLoneLocked(uint32_t block) {
  // Only the newest bucket may grow: later stamps must stay later.
  auto it = buckets_.empty() ? buckets_.end() : std::prev(buckets_.end());
  if (it == buckets_.end() || it->first != (last_stamp_ | kLoneBit) || it->second.blocks.size() >= kMaxLoneBucket) {
    it = buckets_.try_emplace(buckets_.end(), NewStampLocked(true));
  }
  Bucket& bucket = it->second;
  ReserveLocked(bucket, bucket.blocks.size() + 1);
  bucket.blocks.push_back(block);
  ++records_;
  SetStampLocked(block, it->first);
}

void ChainLru::NewChainLocked(absl::Span<const uint32_t> blocks) {
  const uint64_t stamp = NewStampLocked(false);
  Bucket& bucket = buckets_.try_emplace(buckets_.end(), stamp)->second;
  ReserveLocked(bucket, blocks.size());
  bucket.blocks.assign(blocks.begin(), blocks.end());
  records_ += blocks.size();
  for (uint32_t block : blocks) SetStampLocked(block, stamp);
}

void ChainLru::AddSortedLocked(uint64_t stamp, uint32_t block) {
  Bucket& bucket = buckets_.try_emplace(stamp).first->second;
  std::vector<uint32_t>& blocks = bucket.blocks;
  ReserveLocked(bucket, blocks.size() + 1);
  auto place = blocks.end();
  if (IsLone(stamp)) {
    place = blocks.begin() + bucket.head;
  } else if (!blocks.empty() && Entry(blocks.back()).depth > Entry(block).depth) {
    const auto window = blocks.size() > kSortWindow ? blocks.end() - kSortWindow : blocks.begin();
    place = std::upper_bound(window, blocks.end(), Entry(block).depth,
                             [this](uint32_t depth, uint32_t other) { return depth < Entry(other).depth; });
  }
  if (IsLone(stamp) && bucket.head > 0) {
    blocks[--bucket.head] = block;
  } else {
    blocks.insert(place, block);
  }
  ++records_;
  SetStampLocked(block, stamp);
}

void ChainLru::Touch(absl::Span<const uint32_t> chain) {
  if (chain.empty()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  if (chain.size() == 1) {
    AppendLoneLocked(chain[0]);
  } else {
    NewChainLocked(chain);
  }
  CompactLocked(chain.size());
}

void ChainLru::Insert(uint32_t block, uint32_t depth, uint32_t parent) {
  std::lock_guard<std::mutex> lock(mutex_);
  BlockEntry& entry = Entry(block);
  if (entry.stamp == 0) entry.depth = depth;
  const uint64_t parent_stamp = parent == kNoBlock || parent == block ? 0 : Entry(parent).stamp;
  if (parent_stamp == 0) {
    AppendLoneLocked(block);
  } else if ((parent_stamp & kQueuedBit) == 0 || IsLone(parent_stamp)) {
    const uint32_t pair[] = {parent, block};
    NewChainLocked(pair);
  } else if (entry.stamp < parent_stamp) {
    AddSortedLocked(parent_stamp & kStampMask, block);
  }
  CompactLocked(2);
}

uint32_t ChainLru::Pop() {
  std::lock_guard<std::mutex> lock(mutex_);
  while (!buckets_.empty()) {
    const auto oldest = buckets_.begin();
    Bucket& bucket = oldest->second;
    while (bucket.blocks.size() > bucket.head) {
      uint32_t block;
      if (IsLone(oldest->first)) {
        block = bucket.blocks[bucket.head++];
      } else {
        block = bucket.blocks.back();
        bucket.blocks.pop_back();
      }
      --records_;
      if (!IsLiveLocked(block, oldest->first)) continue;
      Entry(block).stamp &= kStampMask;
      --live_;
      return block;
    }
    EraseLocked(oldest);
  }
  return kNoBlock;
}

bool ChainLru::ForgetPopped(uint32_t block) {
  std::lock_guard<std::mutex> lock(mutex_);
  BlockEntry& entry = Entry(block);
  if ((entry.stamp & kQueuedBit) != 0) return false;
  entry.stamp = 0;
  return true;
}

void ChainLru::Return(absl::Span<const uint32_t> blocks) {
  if (blocks.empty()) return;
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint32_t> sorted(blocks.begin(), blocks.end());
  // In this order each is appended to what is there of its bucket.
  std::sort(sorted.begin(), sorted.end(), [this](uint32_t a, uint32_t b) {
    const BlockEntry& x = Entry(a);
    const BlockEntry& y = Entry(b);
    return x.stamp != y.stamp ? x.stamp < y.stamp : x.depth < y.depth;
  });
  for (uint32_t block : sorted) {
    const uint64_t stamp = Entry(block).stamp;
    if (stamp != 0 && (stamp & kQueuedBit) == 0) AddSortedLocked(stamp, block);
  }
  CompactLocked(sorted.size());
}

void ChainLru::Defer(uint32_t block) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t stamp = Entry(block).stamp;
  if (stamp != 0 && (stamp & kQueuedBit) == 0) AppendLoneLocked(block);
}

void ChainLru::Forget(uint32_t block) {
  std::lock_guard<std::mutex> lock(mutex_);
  BlockEntry& entry = Entry(block);
  if ((entry.stamp & kQueuedBit) != 0) --live_;
  entry.stamp = 0;
}

void ChainLru::CompactLocked(size_t added) {
  if (records_ <= kMaxRecordsPerLive * live_ + kCompactAlways) return;
  size_t budget = kLookedAtPerAdded * added;
  auto it = buckets_.lower_bound(compacted_up_to_);
  while (budget > 0) {
    if (it == buckets_.end()) it = buckets_.begin();
    if (it == buckets_.end()) return;
    Bucket& bucket = it->second;
    const size_t size = bucket.blocks.size();
    size_t kept = 0;
    for (size_t i = bucket.head; i < size; ++i) {
      if (i + kPrefetchAhead < size) __builtin_prefetch(&Entry(bucket.blocks[i + kPrefetchAhead]).stamp);
      if (IsLiveLocked(bucket.blocks[i], it->first)) bucket.blocks[kept++] = bucket.blocks[i];
    }
    records_ -= size - bucket.head - kept;
    budget -= std::min(budget, std::max<size_t>(1, size - bucket.head));
    bucket.blocks.resize(kept);
    bucket.head = 0;
    if (kept != 0) {
      if (kept < bucket.blocks.capacity() / 2) ShrinkLocked(bucket);
      ++it;
      continue;
    }
    const uint64_t erased = it->first;
    EraseLocked(it);
    it = buckets_.upper_bound(erased);
  }
  compacted_up_to_ = it == buckets_.end() ? 0 : it->first;
}

uint64_t ChainLru::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return live_;
}

uint64_t ChainLru::memory_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return bucket_bytes_ + buckets_.size() * (sizeof(Buckets::value_type) + kTreeOverhead);
}

uint64_t ChainLru::records() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return records_;
}

}  // namespace quarry
