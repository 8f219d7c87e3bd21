// Write-behind: cold blocks are written to the SSDs before their memory is needed, so that
// making room takes no time. The policy gives its coldest block; once it is on an SSD it waits
// in ready_ until its slots are wanted. A block that is used meanwhile is in the policy again,
// and merely need not be written a second time.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "server/block_store_impl.h"
#include "server/ssd/record_header.h"

namespace quarry::server {
namespace {

// So much of the arena is kept free, or can be given away at once: with less, bursts of puts evict
// what is not written yet, and the disk is idle while a group is made durable. On the conversation
// trace with room for 2 % of its blocks in memory, a 16th hits 33.5 % of the blocks, an 8th 35.1 %,
// a 4th no more.
constexpr uint64_t kReadyShare = 8;
// Written together: a span's blocks lie together.
constexpr uint64_t kBatchBytes = 16 << 20;
constexpr size_t kBatchBlocks = 512;
constexpr std::chrono::milliseconds kLookEvery{5};

}  // namespace

void BlockStoreImpl::SpillLoop() {
  while (!spill_stopping_.load(std::memory_order_relaxed)) {
    const uint64_t missing_bytes = MissingBytes();
    if (missing_bytes == 0 || !ssd_->CanWrite()) {
      std::this_thread::sleep_for(kLookEvery);
      continue;
    }
    bool nothing_left = false;
    std::vector<SpillItem> items = NextSpill(std::min(missing_bytes, kBatchBytes), &nothing_left);
    if (!items.empty()) ssd_->Write(std::move(items));
    if (!nothing_left) continue;
    if (spill_all_.load(std::memory_order_relaxed)) {
      ssd_->Flush();
      spilled_all_.store(true);
    }
    std::this_thread::sleep_for(kLookEvery);
  }
}

void BlockStoreImpl::SpillAll() { spill_all_.store(true); }

bool BlockStoreImpl::SpilledAll() const { return ssd_ == nullptr || spilled_all_.load() || !ssd_->CanWrite(); }

uint64_t BlockStoreImpl::MissingBytes() const {
  if (spill_all_.load(std::memory_order_relaxed)) {
    return spilled_all_.load(std::memory_order_relaxed) ? 0 : kBatchBytes;
  }
  const uint64_t arena_bytes = arena_->memory().size();
  const uint64_t free_bytes = arena_bytes - arena_->used_bytes();
  uint64_t wanted = arena_bytes / kReadyShare;
  uint64_t available = free_bytes - std::min(free_bytes, load_reserve_bytes_);
  // What one disk is slow with, another need not wait for.
  if (!ssd_->HasIdleDisk()) available += spilling_bytes_.load(std::memory_order_relaxed);
  {
    std::lock_guard<std::mutex> lock(ready_mutex_);
    available += ready_bytes_;
    wanted += waiting_bytes_;
  }
  return wanted - std::min(wanted, available);
}

std::vector<SpillItem> BlockStoreImpl::NextSpill(uint64_t wanted_bytes, bool* nothing_left) {
  std::vector<SpillItem> items;
  uint64_t bytes = 0;
  bool any_ready = false;
  const uint64_t moved_bytes = ssd_->moved_bytes();
  budget_->Spend(moved_bytes - std::exchange(spent_on_moves_, moved_bytes));
  for (size_t blocks = 0; blocks < kBatchBlocks && bytes < wanted_bytes; ++blocks) {
    const uint32_t block = policy_->Pop();
    if (block == kNoBlock) {
      *nothing_left = true;
      break;
    }
    uint64_t slot_bytes;
    Popped popped;
    const size_t gathered = items.size();
    {
      std::lock_guard<std::mutex> lock(MutexOf(block));
      popped = GatherLocked(block, budget_->Now(), &items);
      slot_bytes = popped == Popped::kPassedOver ? 0 : SlotBytesLocked(index_->entry(block));
    }
    bytes += slot_bytes;
    for (size_t i = gathered; i < items.size(); ++i) {
      spilling_bytes_.fetch_add(items[i].slot.capacity(), std::memory_order_relaxed);
      budget_->Spend(RecordBytes(items[i].slot.header()->payload_bytes));
    }
    const uint64_t turn = next_turn_++;
    if (popped != Popped::kReady) continue;
    PushReady(turn, block, slot_bytes);
    any_ready = true;
  }
  if (any_ready) ServeWaitingLoads();
  // The policy gives a chain's end first; on the disk its blocks lie in order.
  std::reverse(items.begin(), items.end());
  return items;
}

BlockStoreImpl::Popped BlockStoreImpl::GatherLocked(uint32_t block, WriteBudget::Admits admits,
                                                    std::vector<SpillItem>* items) {
  BlockEntry& entry = index_->entry(block);
  if (entry.hash_bytes == 0 || entry.removed || !entry.HasSlot()) {
    policy_->Forget(block);
    return Popped::kPassedOver;
  }
  if (entry.pins != 0 && !spill_all_.load(std::memory_order_relaxed)) {
    entry.parked = 1;
    return Popped::kPassedOver;
  }
  if (IsInUseLocked(entry)) {
    policy_->Defer(block);
    return Popped::kPassedOver;
  }
  const Namespace* ns = uses_[entry.ns].ns.load(std::memory_order_relaxed);
  if (IsOnSsdLocked(block)) return Popped::kReady;
  const bool over_budget =
      admits == WriteBudget::Admits::kNone || (admits == WriteBudget::Admits::kUsed && entry.used == 0);
  if (entry.no_ssd || over_budget || !IsComplete(StateLocked(block)) || events_.IsCleared(entry.ns)) {
    if (entry.leases != 0) {
      entry.parked = 1;
      return Popped::kPassedOver;
    }
    if (over_budget) over_budget_blocks_.fetch_add(1, std::memory_order_relaxed);
    return Popped::kReady;
  }
  char buffer[kMaxHashBytes];
  const absl::string_view hash = entry.Hash(buffer);
  const absl::Span<const uint32_t> records = index_->records(block);
  for (uint32_t shard = static_cast<uint32_t>(records.size()); shard-- > 0;) {
    const uint32_t slot = entry.slots()[shard];
    if (slot == kNoSlot || records[shard] != kNoRecord) continue;
    SpillItem& item = items->emplace_back();
    item.ns = ns;
    item.ns_index = entry.ns;
    item.group = entry.group;
    item.shard = static_cast<uint16_t>(shard);
    item.hash = std::string(hash);
    item.depth = policy_->DepthOf(block);
    item.stored_at_ms = WallMs(index_->stored_at(block));
    item.block = block;
    item.turn = next_turn_;
    item.slot = arena_->Share(slot);
  }
  return Popped::kSpill;
}

void BlockStoreImpl::PushReady(uint64_t turn, uint32_t block, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(ready_mutex_);
  // Of a block of several shards, some may have failed one by one.
  if (ready_.try_emplace(turn, Ready{block, bytes}).second) ready_bytes_ += bytes;
}

uint32_t BlockStoreImpl::PopReady() {
  if (ssd_ == nullptr) return kNoBlock;
  std::lock_guard<std::mutex> lock(ready_mutex_);
  if (ready_.empty()) return kNoBlock;
  const Ready ready = ready_.begin()->second;
  ready_.erase(ready_.begin());
  ready_bytes_ -= ready.bytes;
  return ready.block;
}

}  // namespace quarry::server
