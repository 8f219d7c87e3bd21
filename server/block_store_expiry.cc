// Blocks whose namespace has a time to live: from its end on nobody finds them. What is leased
// or pinned by then stays readable for its holders.
#include "common/clock.h"
#include "server/block_store_impl.h"

namespace quarry::server {
namespace {

constexpr int64_t kAgeUnitNs = BlockStore::kAgeUnitMs * kNsPerMs;

}  // namespace

uint32_t BlockStoreImpl::NowInAgeUnits() const {
  return static_cast<uint32_t>((clock_->NowNs() - start_ns_) / kAgeUnitNs);
}

BlockStoreImpl::Lifetime BlockStoreImpl::LifetimeOf(const Namespace& ns) const {
  // Where nothing expires the clock is not looked at.
  return ns.ttl_ms.load(std::memory_order_relaxed) == 0 ? Lifetime() : LifetimeAt(ns, NowInAgeUnits());
}

BlockStoreImpl::Lifetime BlockStoreImpl::LifetimeAt(const Namespace& ns, uint32_t now) {
  const uint64_t ttl_ms = ns.ttl_ms.load(std::memory_order_relaxed);
  if (ttl_ms == 0) return {};
  return {ttl_ms / BlockStore::kAgeUnitMs, now};
}

// Of two times that are a unit's difference apart less than two may have passed: so that no
// block is found too long, it may be lost up to two units early.
bool BlockStoreImpl::IsOverLocked(uint32_t block, const Lifetime& lifetime) const {
  if (lifetime.units == UINT64_MAX) return false;
  return lifetime.now - index_->stored_at(block) + uint64_t{1} > lifetime.units && ShardsLocked(block) != 0;
}

bool BlockStoreImpl::ExpireLocked(uint32_t block, const Lifetime& lifetime, Leftovers* leftovers) {
  const BlockEntry& entry = index_->entry(block);
  if (!IsOverLocked(block, lifetime) || entry.pins != 0 || entry.leases != 0) return false;
  RemoveLocked(block, MissCause::kExpired, leftovers);
  expired_blocks_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace quarry::server
