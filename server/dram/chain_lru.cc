#include "server/dram/chain_lru.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quarry::server {
namespace {

// A stamp is counter << 1 | lone; an entry's word has one bit more: whether a record of it
// is in a bucket, so that Pop would find it.
constexpr uint64_t kLoneBit = 1;
constexpr uint64_t kStampStep = 2;
constexpr uint64_t kQueuedBit = uint64_t{1} << 63;
constexpr uint64_t kStampMask = ~kQueuedBit;

bool IsLone(uint64_t stamp) { return (stamp & kLoneBit) != 0; }
size_t WordsPerRecord(uint64_t stamp) { return IsLone(stamp) ? 2 : 1; }

// Bounds what an insertion in the middle of a chain moves.
constexpr size_t kSortWindow = 4096;
constexpr size_t kMaxLoneWords = 8192;
// Compaction begins when records exceed this multiple of live ones, and looks at so many
// records for one that is added: enough to be done before they double again.
constexpr uint64_t kMaxRecordsPerLive = 4;
constexpr uint64_t kCompactAlways = 1024;
constexpr size_t kLookedAtPerAdded = 2;
// Records that touches may add before one of them has to compact.
constexpr size_t kMaxTouched = 8192;
constexpr size_t kPrefetchAhead = 8;
constexpr uint64_t kTreeOverhead = 8;  // of a B-tree node's spare room, per bucket

}  // namespace

bool ChainLru::IsLiveLocked(uint32_t block, uint64_t stamp) const { return Entry(block).stamp == (stamp | kQueuedBit); }

void ChainLru::SetStampLocked(uint32_t block, uint64_t stamp) {
  BlockEntry& entry = Entry(block);
  if ((entry.stamp & kQueuedBit) == 0) ++live_;
  entry.stamp = stamp | kQueuedBit;
}

uint64_t ChainLru::NewStampLocked(bool lone) {
  last_stamp_ += kStampStep;
  return last_stamp_ | (lone ? kLoneBit : 0);
}

void ChainLru::ReserveLocked(Bucket& bucket, size_t words) {
  const size_t before = bucket.words.capacity();
  if (words <= before) return;
  bucket.words.reserve(std::max(words, before + before / 2));
  bucket_bytes_ += (bucket.words.capacity() - before) * sizeof(uint32_t) + (before == 0 ? kAllocationOverhead : 0);
}

void ChainLru::ShrinkLocked(Bucket& bucket) {
  const size_t before = bucket.words.capacity();
  bucket.words.shrink_to_fit();
  bucket_bytes_ -= (before - bucket.words.capacity()) * sizeof(uint32_t);
}

void ChainLru::EraseLocked(Buckets::iterator it) {
  const size_t capacity = it->second.words.capacity();
  if (capacity != 0) bucket_bytes_ -= capacity * sizeof(uint32_t) + kAllocationOverhead;
  buckets_.erase(it);
}

void ChainLru::AppendLoneLocked(uint32_t block) {
  const uint64_t stamp = NewStampLocked(true);
  // Only the newest bucket may grow: later stamps must stay later.
  auto it = buckets_.empty() ? buckets_.end() : std::prev(buckets_.end());
  if (it == buckets_.end() || !IsLone(it->first) || it->second.words.size() >= kMaxLoneWords ||
      (stamp - it->first) / kStampStep > UINT32_MAX) {
    it = buckets_.try_emplace(buckets_.end(), stamp);
  }
  Bucket& bucket = it->second;
  ReserveLocked(bucket, bucket.words.size() + 2);
  bucket.words.push_back(block);
  bucket.words.push_back(static_cast<uint32_t>((stamp - it->first) / kStampStep));
  ++records_;
  SetStampLocked(block, stamp);
}

// A chain's root is a lone block until its first child comes, which is usually next: its
// record would be stale at once, in a bucket of its own.
void ChainLru::DropNewestLoneLocked(uint32_t block) {
  if (buckets_.empty()) return;
  const auto newest = std::prev(buckets_.end());
  std::vector<uint32_t>& words = newest->second.words;
  if (!IsLone(newest->first) || words.size() == newest->second.head || words[words.size() - 2] != block) return;
  words.resize(words.size() - 2);
  --records_;
  if (words.size() == newest->second.head) EraseLocked(newest);
}

void ChainLru::NewChainLocked(absl::Span<const uint32_t> blocks) {
  const uint64_t stamp = NewStampLocked(false);
  Bucket& bucket = buckets_.try_emplace(buckets_.end(), stamp)->second;
  ReserveLocked(bucket, blocks.size());
  bucket.words.assign(blocks.begin(), blocks.end());
  records_ += blocks.size();
  for (uint32_t block : blocks) SetStampLocked(block, stamp);
}

void ChainLru::JoinChainLocked(uint64_t stamp, uint32_t block) {
  Bucket& bucket = buckets_.try_emplace(stamp).first->second;
  std::vector<uint32_t>& blocks = bucket.words;
  ReserveLocked(bucket, blocks.size() + 1);
  auto place = blocks.end();
  if (!blocks.empty() && Entry(blocks.back()).depth > Entry(block).depth) {
    const auto window = blocks.size() > kSortWindow ? blocks.end() - kSortWindow : blocks.begin();
    place = std::upper_bound(window, blocks.end(), Entry(block).depth,
                             [this](uint32_t depth, uint32_t other) { return depth < Entry(other).depth; });
  }
  blocks.insert(place, block);
  ++records_;
  SetStampLocked(block, stamp);
}

void ChainLru::ReturnLoneLocked(uint64_t stamp, uint32_t block) {
  // The bucket whose stamps these are among, if it is still there.
  auto it = buckets_.upper_bound(stamp);
  if (it != buckets_.begin()) --it;
  if (it == buckets_.end() || it->first > stamp || !IsLone(it->first) || it->second.words.size() >= 2 * kMaxLoneWords ||
      (stamp - it->first) / kStampStep > UINT32_MAX) {
    it = buckets_.try_emplace(stamp).first;
  }
  Bucket& bucket = it->second;
  std::vector<uint32_t>& words = bucket.words;
  const uint32_t offset = static_cast<uint32_t>((stamp - it->first) / kStampStep);
  size_t place = words.size();
  while (place > bucket.head && words[place - 1] > offset) place -= 2;
  if (place == bucket.head && place >= 2) {
    bucket.head -= 2;
    words[bucket.head] = block;
    words[bucket.head + 1] = offset;
  } else {
    ReserveLocked(bucket, words.size() + 2);
    words.insert(words.begin() + static_cast<ptrdiff_t>(place), {block, offset});
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
  touched_ += chain.size();
  if (touched_ > kMaxTouched) CompactLocked(std::exchange(touched_, 0));
}

uint32_t ChainLru::DepthOf(uint32_t block) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return Entry(block).depth;
}

void ChainLru::Upkeep() {
  std::lock_guard<std::mutex> lock(mutex_);
  CompactLocked(std::exchange(touched_, 0));
}

void ChainLru::Insert(uint32_t block, uint32_t depth, uint32_t parent) {
  std::lock_guard<std::mutex> lock(mutex_);
  BlockEntry& entry = Entry(block);
  if (entry.stamp == 0) entry.depth = depth;
  const uint64_t parent_stamp = parent == kNoBlock || parent == block ? 0 : Entry(parent).stamp;
  if (parent_stamp == 0) {
    AppendLoneLocked(block);
  } else if ((parent_stamp & kQueuedBit) == 0 || IsLone(parent_stamp)) {
    DropNewestLoneLocked(parent);
    const uint32_t pair[] = {parent, block};
    NewChainLocked(pair);
  } else if (entry.stamp < parent_stamp) {
    JoinChainLocked(parent_stamp & kStampMask, block);
  }
  CompactLocked(2);
}

void ChainLru::Admit(uint32_t block) {
  std::lock_guard<std::mutex> lock(mutex_);
  if ((Entry(block).stamp & kQueuedBit) != 0) return;
  AppendLoneLocked(block);
  CompactLocked(1);
}

void ChainLru::SetDepth(uint32_t block, uint32_t depth) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry(block).depth = depth;
}

uint32_t ChainLru::Pop() {
  std::lock_guard<std::mutex> lock(mutex_);
  while (!buckets_.empty()) {
    const auto oldest = buckets_.begin();
    Bucket& bucket = oldest->second;
    while (bucket.words.size() > bucket.head) {
      uint32_t block;
      uint64_t stamp = oldest->first;
      if (IsLone(stamp)) {
        block = bucket.words[bucket.head];
        stamp += kStampStep * bucket.words[bucket.head + 1];
        bucket.head += 2;
      } else {
        block = bucket.words.back();
        bucket.words.pop_back();
      }
      --records_;
      if (!IsLiveLocked(block, stamp)) continue;
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
    if (stamp == 0 || (stamp & kQueuedBit) != 0) continue;
    if (IsLone(stamp)) {
      ReturnLoneLocked(stamp, block);
    } else {
      JoinChainLocked(stamp, block);
    }
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

size_t ChainLru::CompactBucketLocked(uint64_t stamp, Bucket& bucket) {
  const size_t step = WordsPerRecord(stamp);
  std::vector<uint32_t>& words = bucket.words;
  const size_t looked_at = (words.size() - bucket.head) / step;
  size_t kept = 0;
  for (size_t i = bucket.head; i < words.size(); i += step) {
    const size_t ahead = i + kPrefetchAhead * step;
    if (ahead < words.size()) __builtin_prefetch(&Entry(words[ahead]).stamp);
    const uint64_t own_stamp = step == 1 ? stamp : stamp + kStampStep * words[i + 1];
    if (!IsLiveLocked(words[i], own_stamp)) continue;
    for (size_t word = 0; word < step; ++word) words[kept++] = words[i + word];
  }
  records_ -= looked_at - kept / step;
  words.resize(kept);
  bucket.head = 0;
  if (kept < words.capacity() / 2 && kept != 0) ShrinkLocked(bucket);
  return looked_at;
}

void ChainLru::CompactLocked(size_t added) {
  if (records_ <= kMaxRecordsPerLive * live_ + kCompactAlways) return;
  size_t budget = kLookedAtPerAdded * added;
  auto it = buckets_.lower_bound(compacted_up_to_);
  while (budget > 0 && !buckets_.empty()) {
    if (it == buckets_.end()) it = buckets_.begin();
    const uint64_t stamp = it->first;
    // An empty bucket costs a look too, so that this ends.
    budget -= std::min(budget, CompactBucketLocked(stamp, it->second) + 1);
    if (it->second.words.empty()) EraseLocked(it);
    it = buckets_.upper_bound(stamp);
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

}  // namespace quarry::server
