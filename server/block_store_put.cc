#include <algorithm>

#include "server/block_store_impl.h"

namespace quarry::server {
namespace {

// The token at which the block ends: comparable between groups with different blocks.
uint32_t DepthOf(const Namespace& ns, const PutOffer& offer) {
  const uint64_t tokens_per_block = ns.spec.groups[offer.group].tokens_per_block;
  const uint64_t deepest_block = UINT32_MAX / tokens_per_block - 1;
  return static_cast<uint32_t>((std::min(offer.depth, deepest_block) + 1) * tokens_per_block);
}

uint64_t WaiterKey(uint32_t block, uint32_t shard) { return uint64_t{block} << 32 | shard; }

bool HasReservedSlot(const BlockEntry& entry) {
  return std::any_of(entry.slots().begin(), entry.slots().end(), [](uint32_t slot) { return slot == kReservedSlot; });
}

}  // namespace

PutTicket::~PutTicket() {
  if (store_ != nullptr) store_->Abandon(this, RefusalReason::kNone);
}
void PutTicket::Publish() { store_->Publish(this); }
void PutTicket::Refuse(RefusalReason reason) { store_->Abandon(this, reason); }

OfferResult BlockStoreImpl::Refused(RefusalReason reason, uint64_t hash) {
  refusals_[static_cast<int>(reason)].fetch_add(1, std::memory_order_relaxed);
  if (reason == RefusalReason::kNoSpace) ghosts_.Remember(hash, MissCause::kRefused);
  OfferResult result;
  result.outcome = PutOutcome::kRefused;
  result.reason = reason;
  return result;
}

OfferResult BlockStoreImpl::Offer(const Namespace& ns, const PutOffer& offer) {
  const BlockKey key = KeyOf(ns, offer.group, offer.hash);
  const uint64_t hash = index_->Hash(key);
  if (draining_.load(std::memory_order_acquire)) return Refused(RefusalReason::kDraining, hash);
  const int size_class = arena_->size_classes().ClassOf(offer.bytes);
  if (size_class == SizeClasses::kNone) return Refused(RefusalReason::kNoSpace, hash);
  NameTenant(ns);
  uses_[ns.index].ns.store(&ns, std::memory_order_relaxed);
  // Also when there turns out to be no room: there might have been in more memory. Shards are
  // taken to be of one size.
  reuse_.Store(hash, arena_->size_classes().slot_bytes(size_class) * ns.spec.groups[offer.group].shards);
  const uint32_t parent = offer.parent.empty() ? kNoBlock : FindBlock(KeyOf(ns, offer.group, offer.parent));

  const Lifetime lifetime = LifetimeOf(ns);
  Leftovers leftovers;
  uint32_t block;
  {
    std::lock_guard<std::mutex> lock(index_->mutex(index_->ShardOf(hash)));
    block = index_->Find(hash, key);
    if (block != kNoBlock && ExpireLocked(block, lifetime, &leftovers)) block = kNoBlock;
    if (block == kNoBlock) block = index_->Insert(hash, key, ns.spec.groups[offer.group].shards);
    if (block == kNoBlock) return Refused(RefusalReason::kNoSpace, hash);
    BlockEntry& entry = index_->entry(block);
    uint32_t& slot = entry.slots()[offer.shard];
    if (slot == kReservedSlot) return Refused(RefusalReason::kInFlight, hash);
    policy_->Insert(block, DepthOf(ns, offer), parent);
    if (offer.no_ssd) entry.no_ssd = 1;
    if (slot != kNoSlot || index_->records(block)[offer.shard] != kNoRecord) {
      // Still there only because someone holds it: stored anew.
      if (IsOverLocked(block, lifetime)) index_->stored_at(block) = lifetime.now;
      already_there_.fetch_add(1, std::memory_order_relaxed);
      OfferResult there;
      there.outcome = PutOutcome::kAlreadyThere;
      return there;
    }
    slot = kReservedSlot;
    ++entry.pins;
  }
  in_flight_puts_.fetch_add(1, std::memory_order_relaxed);

  OfferResult wanted;
  wanted.ticket.store_ = this;
  wanted.ticket.block_ = block;
  wanted.ticket.shard_ = offer.shard;
  wanted.ticket.payload_bytes_ = static_cast<uint32_t>(offer.bytes);
  wanted.ticket.depth_ = offer.depth;
  wanted.ticket.parent_ = std::string(offer.parent);
  wanted.ticket.retain_ms_ = std::min(offer.retain_ms, options_.max_lease_ms);
  wanted.ticket.slot_ = MakeRoom(size_class, {block, ns.tenant_index, wanted.ticket.payload_bytes_});
  if (wanted.ticket.slot_) return wanted;
  wanted.ticket.Refuse(RefusalReason::kNoSpace);
  OfferResult refused;
  refused.outcome = PutOutcome::kRefused;
  refused.reason = RefusalReason::kNoSpace;
  return refused;
}

void BlockStoreImpl::Publish(PutTicket* ticket) {
  PutTicket taken(std::move(*ticket));
  const uint32_t block = taken.block_;
  Leftovers leftovers;
  Blocks returned;
  bool retained = false;
  {
    std::lock_guard<std::mutex> lock(MutexOf(block));
    BlockEntry& entry = index_->entry(block);
    if (entry.removed) {
      // Removed in the meantime, this shard with it.
      WithdrawLocked(block, taken.shard_, &leftovers, &returned);
    } else {
      const bool first = ShardsLocked(block) == 0;
      const uint32_t slot = taken.slot_.Release();
      entry.slots()[taken.shard_] = slot;
      uses_[entry.ns].payload_bytes.fetch_add(taken.payload_bytes_, std::memory_order_relaxed);
      if (first) {
        index_->stored_at(block) = NowInAgeUnits();
        blocks_.fetch_add(1, std::memory_order_relaxed);
        uses_[entry.ns].blocks.fetch_add(1, std::memory_order_relaxed);
      }
      if (const BlockState state = StateLocked(block); IsComplete(state)) {
        CompletedLocked(block, taken);
        if (state == BlockState::kSsd) ssd_blocks_.fetch_add(1, std::memory_order_relaxed);
      }
      if (entry.leases != 0) {
        leased_bytes_.fetch_add(static_cast<int64_t>(arena_->SlotBytes(slot)), std::memory_order_relaxed);
      }
      retained = taken.retain_ms_ != 0 && RetainLocked(entry);
      --entry.pins;
      TakeWaitersLocked(block, taken.shard_, &leftovers);
      UnpinnedLocked(block, &returned);
      stored_shards_.fetch_add(1, std::memory_order_relaxed);
      stored_bytes_.fetch_add(taken.payload_bytes_, std::memory_order_relaxed);
    }
  }
  policy_->Return(returned);
  if (retained) leases_.AddInternal(ExpiryNs(taken.retain_ms_), {block});
  taken.store_ = nullptr;
  taken.slot_ = SlotRef();
  in_flight_puts_.fetch_sub(1, std::memory_order_relaxed);
  Drop(&leftovers);
}

void BlockStoreImpl::CompletedLocked(uint32_t block, const PutTicket& ticket) {
  complete_blocks_.fetch_add(1, std::memory_order_relaxed);
  const BlockEntry& entry = index_->entry(block);
  char buffer[kMaxHashBytes];
  BlockEvent event;
  event.ns = entry.ns;
  event.group = entry.group;
  event.depth = ticket.depth_;
  event.bytes = PayloadBytesLocked(block);
  event.SetHash(entry.Hash(buffer));
  event.SetParent(ticket.parent_);
  events_.Append(event);
}

void BlockStoreImpl::Abandon(PutTicket* ticket, RefusalReason reason) {
  PutTicket taken(std::move(*ticket));
  Leftovers leftovers;
  Blocks returned;
  {
    std::lock_guard<std::mutex> lock(MutexOf(taken.block_));
    if (reason != RefusalReason::kNone) {
      refusals_[static_cast<int>(reason)].fetch_add(1, std::memory_order_relaxed);
      ghosts_.Remember(index_->HashOf(taken.block_), MissCause::kRefused);
    }
    WithdrawLocked(taken.block_, taken.shard_, &leftovers, &returned);
  }
  policy_->Return(returned);
  // The memory is back before anyone is told that the put has ended.
  taken.store_ = nullptr;
  taken.slot_ = SlotRef();
  in_flight_puts_.fetch_sub(1, std::memory_order_relaxed);
  Drop(&leftovers);
}

void BlockStoreImpl::WithdrawLocked(uint32_t block, uint32_t shard, Leftovers* leftovers, Blocks* returned) {
  BlockEntry& entry = index_->entry(block);
  entry.slots()[shard] = kNoSlot;
  --entry.pins;
  TakeWaitersLocked(block, shard, leftovers);
  if (!entry.removed && ShardsLocked(block) == 0 && !HasReservedSlot(entry)) index_->Unlink(block);
  UnpinnedLocked(block, returned);
}

void BlockStoreImpl::TakeWaitersLocked(uint32_t block, uint32_t shard, Leftovers* leftovers) {
  auto& waiters = waiters_[index_->ShardOfBlock(block)];
  const auto [begin, end] = waiters.equal_range(WaiterKey(block, shard));
  for (auto it = begin; it != end; ++it) leftovers->calls.push_back(std::move(it->second));
  waiters.erase(begin, end);
}

// Retaining is a promise like a lease, within the same bounds; beyond them the block is
// stored and lives as long as others do.
bool BlockStoreImpl::RetainLocked(BlockEntry& entry) {
  const int64_t added_bytes = entry.leases != 0 ? 0 : static_cast<int64_t>(SlotBytesLocked(entry));
  if (leased_bytes_.load(std::memory_order_relaxed) + added_bytes > max_leased_bytes_) return false;
  if (leases_.Reserve(1).blocks == 0) return false;
  ++entry.leases;
  leased_bytes_.fetch_add(added_bytes, std::memory_order_relaxed);
  return true;
}

bool BlockStoreImpl::WaitForPut(const Namespace& ns, uint32_t group, uint32_t shard, absl::string_view hash,
                                std::function<void()> ended) {
  const BlockKey key = KeyOf(ns, group, hash);
  const uint64_t key_hash = index_->Hash(key);
  const uint32_t index_shard = index_->ShardOf(key_hash);
  std::lock_guard<std::mutex> lock(index_->mutex(index_shard));
  const uint32_t block = index_->Find(key_hash, key);
  if (block == kNoBlock || index_->entry(block).slots()[shard] != kReservedSlot) return false;
  waiters_[index_shard].emplace(WaiterKey(block, shard), std::move(ended));
  return true;
}

void BlockStoreImpl::NameTenant(const Namespace& ns) {
  std::lock_guard<std::mutex> lock(tenants_mutex_);
  if (tenants_.size() <= ns.tenant_index) tenants_.resize(ns.tenant_index + 1);
  if (tenants_[ns.tenant_index].empty()) tenants_[ns.tenant_index] = ns.tenant;
}

std::vector<std::pair<std::string, uint64_t>> BlockStoreImpl::tenant_bytes() const {
  const std::vector<uint64_t> bytes = arena_->tenant_bytes();
  std::lock_guard<std::mutex> lock(tenants_mutex_);
  std::vector<std::pair<std::string, uint64_t>> result;
  for (size_t i = 0; i < bytes.size() && i < tenants_.size(); ++i) {
    if (!tenants_[i].empty()) result.emplace_back(tenants_[i], bytes[i]);
  }
  return result;
}

}  // namespace quarry::server
