#include "server/block_store.h"

#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "server/block_store_impl.h"
#include "server/dram/chain_lru.h"

namespace quarry::server {
namespace {

uint64_t CapacityOf(const SlabArena& arena, double scale) {
  return static_cast<uint64_t>(static_cast<double>(arena.memory().size()) * scale);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlockStoreImpl>> BlockStoreImpl::Create(const BlockStoreOptions& options, Clock* clock) {
  if (!(options.max_leased_share >= 0 && options.max_leased_share <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("max_leased_share: ", options.max_leased_share, " is not in 0..1"));
  }
  if (!(options.reuse_sample_rate >= 0 && options.reuse_sample_rate <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("reuse_sample_rate: ", options.reuse_sample_rate, " is not in 0..1"));
  }
  auto arena = SlabArena::Create({options.arena_bytes, options.slab_bytes, options.prefault});
  if (!arena.ok()) return arena.status();
  // A block has a slot at least, or is about to get one, or has a record.
  auto index =
      BlockIndex::Create(options.index_shards, (*arena)->memory().size() / kSlotAlignment + options.max_ssd_records);
  if (!index.ok()) return index.status();
  return std::unique_ptr<BlockStoreImpl>(new BlockStoreImpl(options, clock, *std::move(arena), *std::move(index)));
}

BlockStoreImpl::BlockStoreImpl(const BlockStoreOptions& options, Clock* clock, std::unique_ptr<SlabArena> arena,
                               std::unique_ptr<BlockIndex> index)
    : options_(options),
      clock_(clock),
      start_ns_(clock->NowNs()),
      max_leased_bytes_(static_cast<int64_t>(options.max_leased_share * static_cast<double>(arena->memory().size()))),
      arena_(std::move(arena)),
      index_(std::move(index)),
      policy_(std::make_unique<ChainLru>(index_.get())),
      ghosts_(options.ghost_entries),
      events_(options.events),
      reuse_({.max_capacity_bytes = CapacityOf(*arena_, kEstimatedMemory.back()),
              .sample_rate = options.reuse_sample_rate}),
      leases_({options.max_leases, options.max_leased_blocks}),
      waiters_(options.index_shards),
      loads_(options.index_shards),
      uses_(new Use[kNamespacesPerIndex]) {}

BlockStoreImpl::~BlockStoreImpl() {
  assert(in_flight_puts_.load() == 0);
  if (ssd_ != nullptr) {
    spill_stopping_.store(true);
    ssd_->StopWriting();
    if (spiller_.joinable()) spiller_.join();
    // It calls back while it goes, so the pointer has to stay good: reset would clear it first.
    delete ssd_.get();
    (void)ssd_.release();
  }
}

uint32_t BlockStoreImpl::FindBlock(const BlockKey& key) const {
  const uint64_t hash = index_->Hash(key);
  std::lock_guard<std::mutex> lock(index_->mutex(index_->ShardOf(hash)));
  return index_->Find(hash, key);
}

int64_t BlockStoreImpl::ExpiryNs(uint32_t lease_ms) const { return clock_->NowNs() + int64_t{lease_ms} * 1'000'000; }

BlockState BlockStoreImpl::StateLocked(uint32_t block) const {
  const BlockEntry& entry = index_->entry(block);
  if (!entry.many && entry.slot < kReservedSlot) return BlockState::kDram;
  const absl::Span<const uint32_t> slots = entry.slots();
  const absl::Span<const uint32_t> records = index_->records(block);
  bool all_there = true;
  bool all_in_memory = true;
  for (size_t shard = 0; shard < slots.size(); ++shard) {
    if (slots[shard] == kReservedSlot) return BlockState::kInFlight;
    if (slots[shard] != kNoSlot) continue;
    all_in_memory = false;
    all_there = all_there && records[shard] != kNoRecord;
  }
  if (!all_there) return BlockState::kIncomplete;
  return all_in_memory ? BlockState::kDram : BlockState::kSsd;
}

uint32_t BlockStoreImpl::ShardsLocked(uint32_t block) const {
  const absl::Span<const uint32_t> slots = static_cast<const BlockEntry&>(index_->entry(block)).slots();
  const absl::Span<const uint32_t> records = index_->records(block);
  uint32_t there = 0;
  for (size_t shard = 0; shard < slots.size(); ++shard) {
    if (slots[shard] < kReservedSlot || records[shard] != kNoRecord) ++there;
  }
  return there;
}

MissCause BlockStoreImpl::CauseOf(BlockState state) {
  switch (state) {
    case BlockState::kIncomplete:
      return MissCause::kIncomplete;
    case BlockState::kInFlight:
      return MissCause::kInFlight;
    case BlockState::kAbsent:
    case BlockState::kDram:
    case BlockState::kSsd:
      break;
  }
  return MissCause::kNone;
}

uint64_t BlockStoreImpl::SlotBytesLocked(const BlockEntry& entry) const {
  uint64_t bytes = 0;
  for (uint32_t slot : entry.slots()) {
    if (slot < kReservedSlot) bytes += arena_->SlotBytes(slot);
  }
  return bytes;
}

uint64_t BlockStoreImpl::PayloadBytesLocked(uint32_t block) const {
  const absl::Span<const uint32_t> slots = static_cast<const BlockEntry&>(index_->entry(block)).slots();
  const absl::Span<const uint32_t> records = index_->records(block);
  uint64_t bytes = 0;
  for (size_t shard = 0; shard < slots.size(); ++shard) {
    if (slots[shard] < kReservedSlot) {
      bytes += arena_->PayloadBytes(slots[shard]);
    } else if (records[shard] != kNoRecord) {
      bytes += ssd_->records().At(records[shard]).payload_bytes;
    }
  }
  return bytes;
}

void BlockStoreImpl::UnpinnedLocked(uint32_t block, Blocks* returned) {
  BlockEntry& entry = index_->entry(block);
  if (entry.pins != 0 || entry.leases != 0) return;
  if (entry.removed) {
    FreeLocked(block);
  } else if (entry.parked) {
    entry.parked = 0;
    returned->push_back(block);
  }
}

void BlockStoreImpl::UnpinLocked(uint32_t block, Blocks* returned) {
  --index_->entry(block).pins;
  UnpinnedLocked(block, returned);
}

void BlockStoreImpl::UnleaseLocked(uint32_t block, Blocks* returned) {
  BlockEntry& entry = index_->entry(block);
  if (--entry.leases == 0 && !entry.removed) {
    leased_bytes_.fetch_sub(static_cast<int64_t>(SlotBytesLocked(entry)), std::memory_order_relaxed);
  }
  UnpinnedLocked(block, returned);
}

template <typename Visitor>
void BlockStoreImpl::VisitBlocks(const Blocks& blocks, Visitor&& visit) {
  constexpr size_t kPrefetchDistance = 16;
  for (size_t i = 0; i < blocks.size();) {
    // Leases and pins list their blocks by index shard.
    const uint32_t shard = index_->ShardOfBlock(blocks[i]);
    std::lock_guard<std::mutex> lock(index_->mutex(shard));
    for (; i < blocks.size() && index_->ShardOfBlock(blocks[i]) == shard; ++i) {
      if (i + kPrefetchDistance < blocks.size()) __builtin_prefetch(&index_->entry(blocks[i + kPrefetchDistance]), 1);
      visit(blocks[i]);
    }
  }
}

void BlockStoreImpl::UnleaseAll(const Blocks& blocks) {
  Blocks returned;
  VisitBlocks(blocks, [&](uint32_t block) { UnleaseLocked(block, &returned); });
  policy_->Return(returned);
}

void BlockStoreImpl::UnpinAll(const Blocks& blocks) {
  Blocks returned;
  VisitBlocks(blocks, [&](uint32_t block) { UnpinLocked(block, &returned); });
  policy_->Return(returned);
}

BlockPins::~BlockPins() {
  if (store_ != nullptr) store_->UnpinAll(blocks_);
}

void BlockStoreImpl::Read(const Namespace& ns, uint32_t group, uint32_t shard, HashSpan hashes,
                          std::vector<ReadResult>* results) {
  results->clear();
  results->resize(hashes.size());
  BlockBatch batch(index_.get(), static_cast<uint16_t>(ns.index));
  batch.Add(static_cast<uint8_t>(group), hashes);
  const Lifetime lifetime = LifetimeOf(ns);
  Leftovers leftovers;
  index_->Visit(&batch, [&](uint32_t item, uint32_t block) {
    ReadResult& result = (*results)[item];
    if (block != kNoBlock && ExpireLocked(block, lifetime, &leftovers)) block = kNoBlock;
    if (block == kNoBlock) {
      result.miss = ghosts_.Recall(batch.hash(item));
    } else if (const uint32_t slot = index_->entry(block).slots()[shard]; slot == kReservedSlot) {
      result.miss = MissCause::kInFlight;
    } else if (slot == kNoSlot) {
      if (const uint32_t record = index_->records(block)[shard]; record != kNoRecord) {
        result.on_ssd = true;
        result.payload_bytes = ssd_->records().At(record).payload_bytes;
        return;
      }
      result.miss = MissCause::kIncomplete;
    } else {
      index_->entry(block).used = 1;
      result.slot = arena_->Share(slot);
      return;
    }
    CountMiss(result.miss);
  });
}

void BlockStoreImpl::Touch(const Namespace& ns, uint32_t group, HashSpan hashes) {
  BlockBatch batch(index_.get(), static_cast<uint16_t>(ns.index));
  batch.Add(static_cast<uint8_t>(group), hashes);
  Blocks found(hashes.size(), kNoBlock);
  index_->Visit(&batch, [&](uint32_t item, uint32_t block) {
    found[item] = block;
    if (block != kNoBlock) ++index_->entry(block).pins;
    reuse_.Touch(batch.hash(item));
  });
  Blocks chain;
  std::copy_if(found.begin(), found.end(), std::back_inserter(chain), [](uint32_t block) { return block != kNoBlock; });
  policy_->Touch(chain);
  Blocks returned;
  index_->VisitShards(&batch, [&](uint32_t item) {
    if (found[item] != kNoBlock) UnpinLocked(found[item], &returned);
  });
  policy_->Return(returned);
}

absl::Status BlockStoreImpl::CheckLease(const Namespace& ns, absl::string_view token) const {
  if (leases_.Holds(ns.tenant, ns.index, token, clock_->NowNs())) return absl::OkStatus();
  return absl::NotFoundError("lease: no such lease of this tenant and namespace, or it has ended");
}

absl::StatusOr<uint32_t> BlockStoreImpl::RenewLease(absl::string_view tenant, absl::string_view token,
                                                    uint32_t lease_ms) {
  if (lease_ms == 0) return absl::InvalidArgumentError("lease_ms: 0 is less than 1");
  const uint32_t granted_ms = std::min(lease_ms, options_.max_lease_ms);
  if (leases_.Renew(tenant, token, clock_->NowNs(), ExpiryNs(granted_ms))) return granted_ms;
  return absl::NotFoundError("lease: no such lease of this tenant, or it has ended");
}

absl::Status BlockStoreImpl::ReleaseLease(absl::string_view tenant, absl::string_view token) {
  const auto blocks = leases_.Take(tenant, token, clock_->NowNs());
  if (!blocks) return absl::NotFoundError("lease: no such lease of this tenant, or it has ended");
  UnleaseAll(*blocks);
  return absl::OkStatus();
}

void BlockStoreImpl::EndExpiredLeases() {
  const int64_t now_ns = clock_->NowNs();
  while (const auto blocks = leases_.TakeExpired(now_ns)) UnleaseAll(*blocks);
}

void BlockStoreImpl::Tick() {
  EndExpiredLeases();
  if (ssd_ != nullptr) ServeWaitingLoads();
  Sweep();
  events_.Tell();
}

StoreStats BlockStoreImpl::stats() const {
  const SlabArena::Stats arena = arena_->stats();
  StoreStats stats;
  stats.arena_bytes = arena_->memory().size();
  stats.used_bytes = arena.used_bytes;
  stats.payload_bytes = arena.payload_bytes;
  stats.leased_bytes = static_cast<uint64_t>(std::max<int64_t>(0, leased_bytes_.load(std::memory_order_relaxed)));
  stats.blocks = blocks_.load(std::memory_order_relaxed);
  stats.complete_blocks = complete_blocks_.load(std::memory_order_relaxed);
  stats.leases = leases_.size();
  stats.leased_blocks = leases_.blocks();
  stats.max_leased_bytes = static_cast<uint64_t>(max_leased_bytes_);
  stats.max_leases = options_.max_leases;
  stats.max_leased_blocks = options_.max_leased_blocks;
  stats.lease_counts = leases_.counts();
  for (int i = 0; i < kLeaseLimits; ++i) stats.lease_limits[i] = lease_limits_[i].load(std::memory_order_relaxed);
  stats.in_flight_puts = in_flight_puts_.load(std::memory_order_relaxed);
  stats.index_bytes = index_->memory_bytes() + policy_->memory_bytes() + ghosts_.memory_bytes() +
                      reuse_.memory_bytes() + arena.metadata_bytes;
  stats.match_hashes = match_hashes_.load(std::memory_order_relaxed);
  stats.match_hits = match_hits_.load(std::memory_order_relaxed);
  for (int i = 0; i < kMissCauses; ++i) stats.misses[i] = misses_[i].load(std::memory_order_relaxed);
  stats.match_uses = reuse_.uses();
  for (size_t i = 0; i < kEstimatedMemory.size(); ++i) {
    stats.estimated_misses[i] = reuse_.MissesAt(CapacityOf(*arena_, kEstimatedMemory[i]));
  }
  for (int i = 0; i < kRefusalReasons; ++i) stats.refusals[i] = refusals_[i].load(std::memory_order_relaxed);
  stats.stored_shards = stored_shards_.load(std::memory_order_relaxed);
  stats.stored_bytes = stored_bytes_.load(std::memory_order_relaxed);
  stats.already_there = already_there_.load(std::memory_order_relaxed);
  stats.evicted_blocks = evicted_blocks_.load(std::memory_order_relaxed);
  stats.evicted_bytes = evicted_bytes_.load(std::memory_order_relaxed);
  stats.slab_evicted_blocks = slab_evicted_blocks_.load(std::memory_order_relaxed);
  stats.slab_evicted_bytes = slab_evicted_bytes_.load(std::memory_order_relaxed);
  stats.expired_blocks = expired_blocks_.load(std::memory_order_relaxed);
  stats.corrupt_blocks = corrupt_blocks_.load(std::memory_order_relaxed);
  stats.slab_moves = arena.slab_moves;
  stats.ssd_blocks = ssd_blocks_.load(std::memory_order_relaxed);
  stats.match_ssd_hits = match_ssd_hits_.load(std::memory_order_relaxed);
  stats.demoted_blocks = demoted_blocks_.load(std::memory_order_relaxed);
  stats.demoted_bytes = demoted_bytes_.load(std::memory_order_relaxed);
  stats.unspilled_blocks = unspilled_blocks_.load(std::memory_order_relaxed);
  stats.over_budget_blocks = over_budget_blocks_.load(std::memory_order_relaxed);
  stats.loads = loads_good_.load(std::memory_order_relaxed);
  stats.loaded_bytes = loaded_bytes_.load(std::memory_order_relaxed);
  stats.failed_loads = loads_failed_.load(std::memory_order_relaxed);
  stats.passed_through = passed_through_.load(std::memory_order_relaxed);
  {
    std::lock_guard<std::mutex> lock(ready_mutex_);
    stats.ready_bytes = ready_bytes_;
  }
  stats.spilling_bytes = spilling_bytes_.load(std::memory_order_relaxed);
  if (ssd_ != nullptr) stats.index_bytes += ssd_->records().memory_bytes();
  stats.free_slabs = stats.arena_bytes / arena_->slab_bytes();
  for (const SlabArena::ClassStats& c : arena.classes) {
    stats.size_classes.push_back({c.slot_bytes, c.slabs, c.used_slots, c.free_slots});
    stats.free_slabs -= c.slabs;
  }
  return stats;
}

// ------------------------------------------------------------ the public class

absl::StatusOr<std::unique_ptr<BlockStore>> BlockStore::Create(const BlockStoreOptions& options, Clock* clock) {
  auto impl = BlockStoreImpl::Create(options, clock);
  if (!impl.ok()) return impl.status();
  return std::unique_ptr<BlockStore>(new BlockStore(*std::move(impl)));
}

BlockStore::BlockStore(std::unique_ptr<BlockStoreImpl> impl) : impl_(std::move(impl)) {}
BlockStore::~BlockStore() = default;

absl::Span<std::byte> BlockStore::arena() const { return impl_->arena(); }
MatchResult BlockStore::Match(const Namespace& ns, const MatchQuery& query) { return impl_->Match(ns, query); }
void BlockStore::Read(const Namespace& ns, uint32_t group, uint32_t shard, HashSpan hashes,
                      std::vector<ReadResult>* results) {
  impl_->Read(ns, group, shard, hashes, results);
}
OfferResult BlockStore::Offer(const Namespace& ns, const PutOffer& offer) { return impl_->Offer(ns, offer); }
bool BlockStore::WaitForPut(const Namespace& ns, uint32_t group, uint32_t shard, absl::string_view hash,
                            std::function<void()> ended) {
  return impl_->WaitForPut(ns, group, shard, hash, std::move(ended));
}
void BlockStore::Touch(const Namespace& ns, uint32_t group, HashSpan hashes) { impl_->Touch(ns, group, hashes); }
void BlockStore::DropCorrupt(const Namespace& ns, uint32_t group, absl::string_view hash) {
  impl_->DropCorrupt(ns, group, hash);
}
std::vector<BlockInfo> BlockStore::Lookup(const Namespace& ns, uint32_t group, HashSpan hashes) const {
  return impl_->Lookup(ns, group, hashes);
}
uint32_t BlockStore::Remove(const Namespace& ns, uint32_t group, HashSpan hashes) {
  return impl_->Remove(ns, group, hashes);
}
BlockPage BlockStore::List(const Namespace& ns, uint64_t cursor, uint32_t max_blocks) const {
  return impl_->List(ns, cursor, max_blocks);
}
absl::StatusOr<PinnedBlocks> BlockStore::Pin(const Namespace& ns, uint32_t group, HashSpan hashes) {
  return impl_->Pin(ns, group, hashes);
}
void BlockStore::Clear(uint32_t ns_index) { impl_->Clear(ns_index); }
void BlockStore::ExpectExpiry() { impl_->ExpectExpiry(); }
NamespaceUse BlockStore::use(const Namespace& ns) const { return impl_->use(ns); }
EventLog& BlockStore::events() { return impl_->events(); }
absl::Status BlockStore::CheckLease(const Namespace& ns, absl::string_view token) const {
  return impl_->CheckLease(ns, token);
}
absl::StatusOr<uint32_t> BlockStore::RenewLease(absl::string_view tenant, absl::string_view token, uint32_t lease_ms) {
  return impl_->RenewLease(tenant, token, lease_ms);
}
absl::Status BlockStore::ReleaseLease(absl::string_view tenant, absl::string_view token) {
  return impl_->ReleaseLease(tenant, token);
}
void BlockStore::Drain() { impl_->Drain(); }
void BlockStore::Tick() { impl_->Tick(); }
void BlockStore::Upkeep() { impl_->Upkeep(); }
StoreStats BlockStore::stats() const { return impl_->stats(); }
std::vector<std::pair<std::string, uint64_t>> BlockStore::tenant_bytes() const { return impl_->tenant_bytes(); }

}  // namespace quarry::server
