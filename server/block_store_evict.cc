#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "server/block_store_impl.h"

namespace quarry::server {
namespace {

// Evictions in policy order that did not free a slot of the class, before a slab is moved.
constexpr uint32_t kEvictionsBeforeMove = 64;
// Slabs that are examined for one move.
constexpr size_t kSlabsToTry = 8;
// Another thread may take the slab that was emptied.
constexpr int kMoveAttempts = 4;
// Blocks that one allocation evicts before it gives up.
constexpr uint32_t kMaxEvictions = 4096;
// Blocks that one allocation looks at before it gives up. Those it found leased are out of
// the policy's way until their lease ends, so the next allocation goes on from there.
constexpr uint64_t kMaxPops = 1 << 16;
// The same, of a load that can wait.
constexpr uint64_t kMaxLoadPops = 256;

}  // namespace

void BlockStoreImpl::Drop(Leftovers* leftovers) {
  leftovers->slots.clear();
  for (std::function<void()>& call : leftovers->calls) call();
  leftovers->calls.clear();
}

SlotRef BlockStoreImpl::MakeRoom(int size_class, const SlotUse& use) {
  if (!OnlyLoadReserveIsLeft()) {
    if (SlotRef slot = arena_->Allocate(size_class, use)) return slot;
  }
  EndExpiredLeases();
  // Without a slab of its class, no single eviction frees a slot for it.
  if (!arena_->OwnsSlabs(size_class)) return MoveAndAllocate(size_class, use);

  // Blocks in use go back into the policy: more pops than blocks would meet them again.
  uint64_t pops = std::min(kMaxPops, policy_->size() + kEvictionsBeforeMove);
  Leftovers leftovers;
  for (uint32_t evictions = 0; pops > 0 && evictions < kMaxEvictions; --pops) {
    const Eviction eviction = EvictNext(false, &leftovers);
    Drop(&leftovers);
    if (eviction == Eviction::kNothingLeft) break;
    if (eviction == Eviction::kKept) continue;
    if (SlotRef slot = arena_->Allocate(size_class, use)) return slot;
    if (++evictions % kEvictionsBeforeMove != 0) continue;
    if (SlotRef slot = MoveAndAllocate(size_class, use)) return slot;
  }
  return MoveAndAllocate(size_class, use);
}

SlotRef BlockStoreImpl::MoveAndAllocate(int size_class, const SlotUse& use) {
  for (int attempt = 0; attempt < kMoveAttempts && MoveSlab(size_class); ++attempt) {
    if (SlotRef slot = arena_->Allocate(size_class, use)) return slot;
  }
  return SlotRef();
}

bool BlockStoreImpl::OnlyLoadReserveIsLeft() const {
  return load_reserve_bytes_ != 0 && arena_->memory().size() - arena_->used_bytes() < load_reserve_bytes_;
}

SlotRef BlockStoreImpl::RoomForLoad(int size_class, const SlotUse& use, bool* from_reserve) {
  *from_reserve = false;
  if (!OnlyLoadReserveIsLeft()) {
    if (SlotRef slot = arena_->Allocate(size_class, use)) return slot;
  }
  if (!arena_->OwnsSlabs(size_class)) return MoveAndAllocate(size_class, use);
  Leftovers leftovers;
  for (uint64_t pops = 0; pops < kMaxLoadPops; ++pops) {
    const Eviction eviction = EvictNext(true, &leftovers);
    Drop(&leftovers);
    if (eviction == Eviction::kNothingLeft) break;
    if (eviction == Eviction::kKept) continue;
    if (SlotRef slot = arena_->Allocate(size_class, use)) return slot;
  }
  *from_reserve = true;
  return arena_->Allocate(size_class, use);
}

BlockStoreImpl::Eviction BlockStoreImpl::EvictNext(bool only_what_is_on_ssd, Leftovers* leftovers) {
  uint32_t block = PopReady();
  const bool was_ready = block != kNoBlock;
  if (!was_ready) block = policy_->Pop();
  if (block == kNoBlock) return Eviction::kNothingLeft;
  std::lock_guard<std::mutex> lock(MutexOf(block));
  BlockEntry& entry = index_->entry(block);
  if (entry.hash_bytes == 0 || entry.removed) {
    policy_->Forget(block);
    return Eviction::kKept;
  }
  if (IsHeldLocked(block)) {
    entry.parked = 1;
    return Eviction::kKept;
  }
  if (IsInUseLocked(entry)) {
    policy_->Defer(block);
    return Eviction::kKept;
  }
  if (only_what_is_on_ssd && !was_ready && entry.HasSlot() && !IsOnSsdLocked(block)) {
    policy_->Return(absl::MakeConstSpan(&block, 1));
    return Eviction::kNothingLeft;
  }
  if (!policy_->ForgetPopped(block)) return Eviction::kKept;
  if (!entry.HasSlot()) return Eviction::kKept;  // on an SSD alone
  EvictLocked(block, leftovers);
  return Eviction::kEvicted;
}

bool BlockStoreImpl::IsHeldLocked(uint32_t block) const {
  const BlockEntry& entry = index_->entry(block);
  return entry.pins != 0 || (entry.leases != 0 && !IsOnSsdLocked(block));
}

bool BlockStoreImpl::IsInUseLocked(const BlockEntry& entry) const {
  return std::any_of(entry.slots().begin(), entry.slots().end(),
                     [this](uint32_t slot) { return slot < kReservedSlot && arena_->References(slot) > 1; });
}

bool BlockStoreImpl::MoveSlab(int size_class) {
  absl::InlinedVector<uint32_t, kSlabsToTry> tried;
  std::vector<SlabArena::UsedSlot> used;
  while (tried.size() < kSlabsToTry) {
    const int64_t slab = arena_->PickSlabToMove(size_class, tried, &used);
    if (slab < 0) return false;
    tried.push_back(static_cast<uint32_t>(slab));
    if (!CanEvictAll(used)) continue;
    Leftovers leftovers;
    for (const SlabArena::UsedSlot& slot : used) {
      std::lock_guard<std::mutex> lock(MutexOf(slot.owner));
      BlockEntry& entry = index_->entry(slot.owner);
      if (!OwnsLocked(entry, slot.id)) continue;
      if (IsHeldLocked(slot.owner) || IsInUseLocked(entry)) break;
      slab_evicted_blocks_.fetch_add(1, std::memory_order_relaxed);
      slab_evicted_bytes_.fetch_add(SlotBytesLocked(entry), std::memory_order_relaxed);
      policy_->Forget(slot.owner);
      EvictLocked(slot.owner, &leftovers);
    }
    Drop(&leftovers);
    return true;
  }
  return false;
}

bool BlockStoreImpl::OwnsLocked(const BlockEntry& entry, uint32_t slot) {
  if (entry.hash_bytes == 0 || entry.removed) return false;
  return std::find(entry.slots().begin(), entry.slots().end(), slot) != entry.slots().end();
}

bool BlockStoreImpl::CanEvictAll(absl::Span<const SlabArena::UsedSlot> slots) const {
  return std::all_of(slots.begin(), slots.end(), [this](const SlabArena::UsedSlot& slot) {
    std::lock_guard<std::mutex> lock(MutexOf(slot.owner));
    const BlockEntry& entry = index_->entry(slot.owner);
    return OwnsLocked(entry, slot.id) && !IsHeldLocked(slot.owner) && !IsInUseLocked(entry);
  });
}

void BlockStoreImpl::EvictLocked(uint32_t block, Leftovers* leftovers) {
  BlockEntry& entry = index_->entry(block);
  if (!IsOnSsdLocked(block)) {
    if (ssd_ != nullptr && entry.no_ssd == 0) unspilled_blocks_.fetch_add(1, std::memory_order_relaxed);
    RemoveLocked(block, MissCause::kEvicted, leftovers);
    return;
  }
  const uint64_t bytes = SlotBytesLocked(entry);
  demoted_blocks_.fetch_add(1, std::memory_order_relaxed);
  demoted_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (entry.leases != 0) leased_bytes_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  if (StateLocked(block) == BlockState::kDram) ssd_blocks_.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t& slot : entry.slots()) {
    if (slot == kNoSlot) continue;
    leftovers->slots.push_back(SlotRef::Adopt(arena_.get(), slot));
    slot = kNoSlot;
  }
}

void BlockStoreImpl::RemoveLocked(uint32_t block, MissCause cause, Leftovers* leftovers) {
  BlockEntry& entry = index_->entry(block);
  const uint64_t bytes = SlotBytesLocked(entry);
  const uint64_t payload_bytes = PayloadBytesLocked(block);
  const BlockState state = StateLocked(block);
  if (state == BlockState::kSsd) ssd_blocks_.fetch_sub(1, std::memory_order_relaxed);
  if (entry.leases != 0) leased_bytes_.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  if (IsComplete(state)) {
    complete_blocks_.fetch_sub(1, std::memory_order_relaxed);
    char buffer[kMaxHashBytes];
    BlockEvent event;
    event.kind = BlockEvent::Kind::kRemoved;
    event.ns = entry.ns;
    event.group = entry.group;
    event.cause = cause;
    event.bytes = payload_bytes;
    event.SetHash(entry.Hash(buffer));
    events_.Append(event);
  }
  const bool had_shard = ShardsLocked(block) != 0;
  for (uint32_t& slot : entry.slots()) {
    if (slot >= kReservedSlot) continue;
    leftovers->slots.push_back(SlotRef::Adopt(arena_.get(), slot));
    slot = kNoSlot;
  }
  if (ssd_ != nullptr) DropRecordsLocked(block);
  if (had_shard) {
    blocks_.fetch_sub(1, std::memory_order_relaxed);
    uses_[entry.ns].blocks.fetch_sub(1, std::memory_order_relaxed);
    uses_[entry.ns].payload_bytes.fetch_sub(payload_bytes, std::memory_order_relaxed);
  }
  if (cause == MissCause::kEvicted) {
    evicted_blocks_.fetch_add(1, std::memory_order_relaxed);
    evicted_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  const uint64_t hash = index_->HashOf(block);
  ghosts_.Remember(hash, cause);
  if (cause != MissCause::kEvicted) reuse_.Forget(hash);  // no memory would have kept it
  index_->Unlink(block);
  if (entry.pins != 0 || entry.leases != 0) {
    policy_->Forget(block);
  } else {
    FreeLocked(block);
  }
}

void BlockStoreImpl::FreeLocked(uint32_t block) {
  policy_->Forget(block);
  index_->Free(block);
}

void BlockStoreImpl::DropCorrupt(const Namespace& ns, uint32_t group, absl::string_view hash) {
  const BlockKey key = KeyOf(ns, group, hash);
  const uint64_t key_hash = index_->Hash(key);
  Leftovers leftovers;
  {
    std::lock_guard<std::mutex> lock(index_->mutex(index_->ShardOf(key_hash)));
    const uint32_t block = index_->Find(key_hash, key);
    if (block == kNoBlock) return;
    RemoveLocked(block, MissCause::kCorrupt, &leftovers);
    corrupt_blocks_.fetch_add(1, std::memory_order_relaxed);
  }
  Drop(&leftovers);
}

}  // namespace quarry::server
