// Blocks on SSDs: finding them at the start, and what the tier asks about them.
#include <algorithm>
#include <chrono>

#include "server/block_store_impl.h"

namespace quarry::server {
namespace {

// Of the arena, what puts do not get: reads from the SSDs go there when all else is leased, or
// not yet on an SSD itself.
constexpr uint64_t kLoadReserveShare = 32;

int64_t WallNowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// ------------------------------------------------------------ at the start

absl::Status BlockStoreImpl::OpenSsd(const SsdTierOptions& options, NamespaceRegistry* namespaces) {
  auto tier = SsdTier::Open(options, this, clock_);
  if (!tier.ok()) return tier.status();
  ssd_ = *std::move(tier);
  const auto know = [&](const CatalogNamespace& known) -> std::optional<RecordLog::Contents> {
    const auto opened = namespaces->Open(known.tenant, known.name, known.spec, false, known.ttl_ms);
    if (!opened.ok()) return std::nullopt;
    const auto index = static_cast<uint16_t>(opened->ns->index);
    uses_[index].ns.store(opened->ns, std::memory_order_relaxed);
    if (known.ttl_ms != 0) ExpectExpiry();
    return RecordLog::Contents{index, opened->ns};
  };
  absl::Status status =
      ssd_->Recover(know, [this](uint16_t ns_index, const CatalogRecord& record, const RecordPlace& place) {
        return RestoreRecord(ns_index, record, place);
      });
  if (!status.ok()) return status;
  budget_ = std::make_unique<WriteBudget>(options.write_budget_bytes_per_day, options.write_burst_bytes, clock_);
  load_reserve_bytes_ = arena_->memory().size() / kLoadReserveShare;
  ssd_->Start();
  spiller_ = std::thread([this] { SpillLoop(); });
  return absl::OkStatus();
}

bool BlockStoreImpl::RestoreRecord(uint16_t ns_index, const CatalogRecord& record, const RecordPlace& place) {
  const ModelSpec& spec = uses_[ns_index].ns.load(std::memory_order_relaxed)->spec;
  if (record.group >= spec.groups.size() || record.shard >= spec.groups[record.group].shards) return false;
  if (record.hash.size() != spec.hash_bytes) return false;
  const BlockKey key{ns_index, record.group, record.hash};
  const uint64_t hash = index_->Hash(key);
  std::lock_guard<std::mutex> lock(index_->mutex(index_->ShardOf(hash)));
  uint32_t block = index_->Find(hash, key);
  if (block == kNoBlock) {
    block = index_->Insert(hash, key, spec.groups[record.group].shards);
    if (block == kNoBlock) return false;
    policy_->SetDepth(block, record.depth);
  }
  uint32_t& number = index_->records(block)[record.shard];
  if (number != kNoRecord) return false;
  const bool first = ShardsLocked(block) == 0;
  number = ssd_->records().Add(place, record.payload_bytes);
  if (number == kNoRecord) {
    if (first) {
      index_->Unlink(block);
      FreeLocked(block);
    }
    return false;
  }
  uses_[ns_index].payload_bytes.fetch_add(record.payload_bytes, std::memory_order_relaxed);
  if (first) {
    const int64_t age_ms = std::max<int64_t>(0, WallNowMs() - record.stored_at_ms);
    index_->stored_at(block) = NowInAgeUnits() - static_cast<uint32_t>(age_ms / BlockStore::kAgeUnitMs);
    blocks_.fetch_add(1, std::memory_order_relaxed);
    uses_[ns_index].blocks.fetch_add(1, std::memory_order_relaxed);
  }
  if (StateLocked(block) == BlockState::kSsd) {
    complete_blocks_.fetch_add(1, std::memory_order_relaxed);
    ssd_blocks_.fetch_add(1, std::memory_order_relaxed);
  }
  return true;
}

int64_t BlockStoreImpl::WallMs(uint32_t stored_at) const {
  return WallNowMs() - int64_t{NowInAgeUnits() - stored_at} * BlockStore::kAgeUnitMs;
}

// ------------------------------------------------------------ records of a block

bool BlockStoreImpl::IsOnSsdLocked(uint32_t block) const {
  if (ssd_ == nullptr) return false;
  const absl::Span<const uint32_t> slots = static_cast<const BlockEntry&>(index_->entry(block)).slots();
  const absl::Span<const uint32_t> records = index_->records(block);
  for (size_t shard = 0; shard < slots.size(); ++shard) {
    if (slots[shard] != kNoSlot && records[shard] == kNoRecord) return false;
  }
  return true;
}

void BlockStoreImpl::UseRecordsLocked(uint32_t block) {
  const UseTime now = UseTimeNow(*clock_);
  for (uint32_t record : index_->records(block)) {
    if (record != kNoRecord) ssd_->records().At(record).used_at = now;
  }
}

void BlockStoreImpl::DropRecordsLocked(uint32_t block) {
  for (uint32_t& record : index_->records(block)) {
    if (record != kNoRecord) ssd_->Drop(std::exchange(record, kNoRecord));
  }
}

void BlockStoreImpl::LoseRecordLocked(uint32_t block, uint32_t shard, MissCause cause, Leftovers* leftovers) {
  if (index_->entry(block).slots()[shard] == kNoSlot) {
    RemoveLocked(block, cause, leftovers);
    return;
  }
  ssd_->Drop(std::exchange(index_->records(block)[shard], kNoRecord));
}

uint32_t* BlockStoreImpl::FindRecordLocked(const ShardKey& key, const RecordPlace& place, uint32_t* block) {
  const BlockKey block_key{key.ns, key.group, key.hash};
  *block = index_->Find(index_->Hash(block_key), block_key);
  if (*block == kNoBlock) return nullptr;
  const absl::Span<uint32_t> records = index_->records(*block);
  if (key.shard >= records.size()) return nullptr;
  uint32_t* record = &records[key.shard];
  if (*record == kNoRecord || ssd_->records().At(*record).place != place) return nullptr;
  return record;
}

bool BlockStoreImpl::OnWritten(const SpillItem& item, uint32_t record) {
  spilling_bytes_.fetch_sub(item.slot.capacity(), std::memory_order_relaxed);
  uint64_t ready_bytes = 0;
  {
    std::lock_guard<std::mutex> lock(MutexOf(item.block));
    const BlockEntry& entry = index_->entry(item.block);
    if (entry.hash_bytes == 0 || entry.removed) return false;
    // The slot is held for the writing: whoever has its number has these bytes.
    const absl::Span<const uint32_t> slots = entry.slots();
    if (item.shard >= slots.size() || slots[item.shard] != item.slot.id()) return false;
    uint32_t& own = index_->records(item.block)[item.shard];
    if (own != kNoRecord) return false;
    own = record;
    if (IsOnSsdLocked(item.block)) ready_bytes = SlotBytesLocked(entry);
  }
  if (ready_bytes != 0) {
    PushReady(item.turn, item.block, ready_bytes);
    ServeWaitingLoads();
  }
  return true;
}

// With no other disk to go to, it goes when its turn comes, or is used before and tried again.
void BlockStoreImpl::OnWriteFailed(const SpillItem& item, bool disk_failed) {
  spilling_bytes_.fetch_sub(item.slot.capacity(), std::memory_order_relaxed);
  if (disk_failed && ssd_->CanWrite()) return policy_->Return(absl::MakeConstSpan(&item.block, 1));
  PushReady(item.turn, item.block, item.slot.capacity());
}

SsdOwner::Fate BlockStoreImpl::OnReclaim(const ShardKey& key, const RecordPlace& place, UseTime used_since) {
  Leftovers leftovers;
  {
    const BlockKey block_key{key.ns, key.group, key.hash};
    std::lock_guard<std::mutex> lock(index_->mutex(index_->ShardOf(index_->Hash(block_key))));
    uint32_t block;
    uint32_t* record = FindRecordLocked(key, place, &block);
    if (record == nullptr) return Fate::kGone;
    const BlockEntry& entry = index_->entry(block);
    if (entry.slots()[key.shard] < kReservedSlot) {
      // In memory: written again when it is cold.
      ssd_->Drop(std::exchange(*record, kNoRecord));
      return Fate::kGone;
    }
    const UseTime used_at = ssd_->records().At(*record).used_at;
    if (entry.pins != 0 || entry.leases != 0 || (used_at != 0 && IsLater(used_at, used_since))) return Fate::kKeep;
    RemoveLocked(block, MissCause::kEvicted, &leftovers);
  }
  Drop(&leftovers);
  return Fate::kGone;
}

bool BlockStoreImpl::OnMoved(const ShardKey& key, const RecordPlace& from, const RecordPlace& to) {
  const BlockKey block_key{key.ns, key.group, key.hash};
  std::lock_guard<std::mutex> lock(index_->mutex(index_->ShardOf(index_->Hash(block_key))));
  uint32_t block;
  const uint32_t* record = FindRecordLocked(key, from, &block);
  if (record == nullptr) return false;
  RecordTable::Record& moved = ssd_->records().At(*record);
  moved.place = to;
  moved.used_at = 0;
  return true;
}

void BlockStoreImpl::OnLost(const ShardKey& key, const RecordPlace& place) {
  Leftovers leftovers;
  {
    const BlockKey block_key{key.ns, key.group, key.hash};
    std::lock_guard<std::mutex> lock(index_->mutex(index_->ShardOf(index_->Hash(block_key))));
    uint32_t block;
    if (FindRecordLocked(key, place, &block) == nullptr) return;
    LoseRecordLocked(block, key.shard, MissCause::kNodeLost, &leftovers);
  }
  Drop(&leftovers);
}

// ------------------------------------------------------------ the public class

absl::Status BlockStore::OpenSsd(const SsdTierOptions& options, NamespaceRegistry* namespaces) {
  return impl_->OpenSsd(options, namespaces);
}
SsdTier* BlockStore::ssd() const { return impl_->ssd(); }
void BlockStore::SpillAll() { impl_->SpillAll(); }
bool BlockStore::SpilledAll() const { return impl_->SpilledAll(); }

}  // namespace quarry::server
