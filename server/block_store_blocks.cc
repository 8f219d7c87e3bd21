// Blocks by themselves, as operators see them: lookups, removal, listing, pins, sweeping.
#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/block_store_impl.h"

namespace quarry::server {
namespace {

// Entries that one page of a listing, and one turn of the sweep, looks at.
constexpr uint32_t kEntriesPerPage = 64 << 10;
constexpr uint32_t kEntriesPerSweep = 16 << 10;
// Sweeps for what has expired begin at most so often.
constexpr uint32_t kSweepEveryUnits = 10;
// Under one hold of a shard's mutex.
constexpr uint32_t kEntriesPerLock = 256;

// A place in the index, as a number: what lies before it has been visited.
struct IndexPlace {
  explicit IndexPlace(uint64_t cursor) : shard(static_cast<uint32_t>(cursor >> 32)), entry(cursor & UINT32_MAX) {}
  uint64_t cursor() const { return uint64_t{shard} << 32 | entry; }

  uint32_t shard;
  uint32_t entry;
};

}  // namespace

// Calls visit(block), with its shard's mutex held, for the entries in use from `cursor` on,
// while visit returns true and at most `max_entries`. Returns the cursor to go on from;
// kEndOfIndex: that was all.
template <typename Visitor>
uint64_t BlockStoreImpl::VisitEntries(uint64_t cursor, uint32_t max_entries, Visitor&& visit) {
  IndexPlace place(cursor);
  while (place.shard < index_->shards()) {
    std::lock_guard<std::mutex> lock(index_->mutex(place.shard));
    const uint32_t entries = index_->EntriesOf(place.shard);
    const uint32_t end = static_cast<uint32_t>(std::min<uint64_t>(entries, uint64_t{place.entry} + kEntriesPerLock));
    for (; place.entry < end; ++place.entry) {
      if (max_entries-- == 0) return place.cursor();
      const uint32_t block = index_->BlockOf(place.shard, place.entry);
      const BlockEntry& entry = index_->entry(block);
      if (entry.hash_bytes != 0 && !entry.removed && !visit(block)) return place.cursor();
    }
    if (place.entry >= entries) place = IndexPlace(uint64_t{place.shard + 1} << 32);
  }
  return BlockStore::kEndOfIndex;
}

void BlockStoreImpl::DescribeLocked(uint32_t block, uint32_t tokens_per_block, BlockInfo* info) const {
  const BlockEntry& entry = index_->entry(block);
  info->state = StateLocked(block);
  info->group = entry.group;
  info->leases = entry.leases;
  info->bytes = PayloadBytesLocked(block);
  info->shards_there = ShardsLocked(block);
  info->depth = policy_->DepthOf(block) / tokens_per_block - 1;
  if (info->shards_there != 0) {
    info->age_ms = uint64_t{NowInAgeUnits() - index_->stored_at(block)} * BlockStore::kAgeUnitMs;
  }
  info->no_ssd = entry.no_ssd != 0;
}

std::vector<BlockInfo> BlockStoreImpl::Lookup(const Namespace& ns, uint32_t group, HashSpan hashes) {
  const Lifetime lifetime = LifetimeOf(ns);
  std::vector<BlockInfo> infos(hashes.size());
  BlockBatch batch(index_.get(), static_cast<uint16_t>(ns.index));
  batch.Add(static_cast<uint8_t>(group), hashes);
  index_->Visit(&batch, [&](uint32_t item, uint32_t block) {
    BlockInfo& info = infos[item];
    info.hash = std::string(hashes[item]);
    info.group = group;
    if (block == kNoBlock) {
      info.miss = ghosts_.Recall(batch.hash(item));
      return;
    }
    if (IsOverLocked(block, lifetime)) {
      info.miss = MissCause::kExpired;
      return;
    }
    DescribeLocked(block, ns.spec.groups[group].tokens_per_block, &info);
    info.miss = CauseOf(info.state);
  });
  return infos;
}

uint32_t BlockStoreImpl::Remove(const Namespace& ns, uint32_t group, HashSpan hashes) {
  uint32_t removed = 0;
  Leftovers leftovers;
  BlockBatch batch(index_.get(), static_cast<uint16_t>(ns.index));
  batch.Add(static_cast<uint8_t>(group), hashes);
  index_->Visit(&batch, [&](uint32_t, uint32_t block) {
    if (block == kNoBlock) return;
    RemoveLocked(block, MissCause::kRetired, &leftovers);
    ++removed;
  });
  Drop(&leftovers);
  return removed;
}

BlockPage BlockStoreImpl::List(const Namespace& ns, uint64_t cursor, uint32_t max_blocks) {
  const Lifetime lifetime = LifetimeOf(ns);
  BlockPage page;
  const auto index = static_cast<uint16_t>(ns.index);
  page.next = VisitEntries(cursor, kEntriesPerPage, [&](uint32_t block) {
    const BlockEntry& entry = index_->entry(block);
    if (entry.ns != index || IsOverLocked(block, lifetime)) return true;
    if (page.blocks.size() == max_blocks) return false;
    BlockInfo info;
    DescribeLocked(block, ns.spec.groups[entry.group].tokens_per_block, &info);
    if (info.shards_there == 0) return true;  // a first put is under way
    char buffer[kMaxHashBytes];
    info.hash = std::string(entry.Hash(buffer));
    info.miss = CauseOf(info.state);
    page.blocks.push_back(std::move(info));
    return true;
  });
  return page;
}

absl::StatusOr<PinnedBlocks> BlockStoreImpl::Pin(const Namespace& ns, uint32_t group, HashSpan hashes) {
  const LeaseTable::Room room = leases_.Reserve(hashes.size());
  if (room.blocks < hashes.size()) {
    if (room.blocks != 0) leases_.Shrink(room.blocks, 0);
    return absl::ResourceExhaustedError(absl::StrCat("hashes: ", hashes.size(),
                                                     ", but the node's leases have room for ", room.blocks, " more (",
                                                     Name(room.limit), ")"));
  }
  const Lifetime lifetime = LifetimeOf(ns);
  int64_t added_bytes = 0;
  Blocks blocks;
  BlockBatch batch(index_.get(), static_cast<uint16_t>(ns.index));
  batch.Add(static_cast<uint8_t>(group), hashes);
  index_->Visit(&batch, [&](uint32_t, uint32_t block) {
    if (block == kNoBlock || IsOverLocked(block, lifetime)) return;
    if (!IsComplete(StateLocked(block))) return;
    BlockEntry& entry = index_->entry(block);
    if (++entry.leases == 1) added_bytes += static_cast<int64_t>(SlotBytesLocked(entry));
    blocks.push_back(block);
  });
  leases_.Shrink(room.blocks, blocks.size());
  const int64_t leased_bytes = leased_bytes_.fetch_add(added_bytes, std::memory_order_relaxed) + added_bytes;
  PinnedBlocks pinned;
  pinned.count = static_cast<uint32_t>(blocks.size());
  if (blocks.empty()) return pinned;
  if (leased_bytes > max_leased_bytes_) {
    leases_.Shrink(blocks.size(), 0);
    UnleaseAll(blocks);
    return absl::ResourceExhaustedError(
        absl::StrCat("hashes: pinning these would lease ", leased_bytes, " bytes in all, at most ", max_leased_bytes_));
  }
  pinned.token = leases_.Add(ns.tenant, ns.index, std::numeric_limits<int64_t>::max(), std::move(blocks));
  return pinned;
}

void BlockStoreImpl::Clear(uint32_t ns_index) {
  events_.AppendCleared(ns_index);
  if (ssd_ != nullptr) ssd_->ForgetNamespace(static_cast<uint16_t>(ns_index));
  std::lock_guard<std::mutex> lock(sweep_mutex_);
  sweep_again_ = true;
}

// Whether there is something to sweep, and a sweep has not begun just now.
bool BlockStoreImpl::BeginSweep() {
  const uint32_t now = NowInAgeUnits();
  const bool expiry = expiry_.load(std::memory_order_relaxed) && now - last_sweep_ >= kSweepEveryUnits;
  if (!sweep_again_ && !expiry) return false;
  sweep_again_ = false;
  last_sweep_ = now;
  sweep_cursor_ = 0;
  return true;
}

// Blocks of cleared namespaces, and those whose time is over, are found by nobody any more;
// this gives their memory back.
void BlockStoreImpl::Sweep() {
  std::lock_guard<std::mutex> lock(sweep_mutex_);
  if (sweep_cursor_ == BlockStore::kEndOfIndex && !BeginSweep()) return;
  const uint32_t now = NowInAgeUnits();
  Leftovers leftovers;
  sweep_cursor_ = VisitEntries(sweep_cursor_, kEntriesPerSweep, [&](uint32_t block) {
    const uint32_t ns_index = index_->entry(block).ns;
    if (events_.IsCleared(ns_index)) {
      RemoveLocked(block, MissCause::kRetired, &leftovers);
    } else if (const Namespace* ns = uses_[ns_index].ns.load(std::memory_order_relaxed); ns != nullptr) {
      ExpireLocked(block, LifetimeAt(*ns, now), &leftovers);
    }
    return true;
  });
  Drop(&leftovers);
}

NamespaceUse BlockStoreImpl::use(const Namespace& ns) const {
  const Use& use = uses_[ns.index];
  return {use.blocks.load(std::memory_order_relaxed), use.payload_bytes.load(std::memory_order_relaxed)};
}

}  // namespace quarry::server
