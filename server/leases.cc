#include "server/leases.h"

#include "common/random.h"

namespace quarry::server {

LeaseTable::Room LeaseTable::Reserve(uint64_t blocks) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (leases_ >= limits_.leases) return {0, LeaseLimit::kLeases};
  const Room room = blocks_ + blocks <= limits_.blocks ? Room{blocks, LeaseLimit::kNone}
                                                       : Room{limits_.blocks - blocks_, LeaseLimit::kBlocks};
  if (room.blocks == 0) return room;
  ++leases_;
  blocks_ += room.blocks;
  return room;
}

void LeaseTable::Shrink(uint64_t reserved, uint64_t kept) {
  std::lock_guard<std::mutex> lock(mutex_);
  blocks_ -= reserved - kept;
  if (kept == 0) --leases_;
}

std::string LeaseTable::Add(absl::string_view tenant, uint32_t ns, int64_t expires_ns, Blocks blocks) {
  auto lease = std::make_unique<Lease>();
  lease->token = SecureRandomBytes(kLeaseTokenBytes);
  lease->tenant = std::string(tenant);
  lease->ns = ns;
  lease->blocks = std::move(blocks);
  std::string token = lease->token;
  std::lock_guard<std::mutex> lock(mutex_);
  ++counts_.granted;
  AddLocked(expires_ns, std::move(lease));
  return token;
}

void LeaseTable::AddInternal(int64_t expires_ns, Blocks blocks) {
  auto lease = std::make_unique<Lease>();
  lease->blocks = std::move(blocks);
  std::lock_guard<std::mutex> lock(mutex_);
  ++counts_.retained;
  AddLocked(expires_ns, std::move(lease));
}

void LeaseTable::AddLocked(int64_t expires_ns, std::unique_ptr<Lease> lease) {
  const auto it = by_expiry_.emplace(expires_ns, std::move(lease));
  if (!it->second->token.empty()) by_token_.emplace(it->second->token, it);
}

std::unordered_map<std::string, LeaseTable::ByExpiry::iterator>::const_iterator LeaseTable::FindLocked(
    absl::string_view tenant, absl::string_view token, int64_t now_ns) const {
  const auto it = by_token_.find(std::string(token));
  if (it == by_token_.end()) return it;
  const auto& [expires_ns, lease] = *it->second;
  return lease->tenant == tenant && now_ns < expires_ns ? it : by_token_.end();
}

bool LeaseTable::Holds(absl::string_view tenant, uint32_t ns, absl::string_view token, int64_t now_ns) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = FindLocked(tenant, token, now_ns);
  return it != by_token_.end() && it->second->second->ns == ns;
}

bool LeaseTable::Renew(absl::string_view tenant, absl::string_view token, int64_t now_ns, int64_t expires_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = FindLocked(tenant, token, now_ns);
  if (it == by_token_.end()) return false;
  auto node = by_expiry_.extract(it->second);
  node.key() = expires_ns;
  const auto renewed = by_expiry_.insert(std::move(node));
  by_token_[renewed->second->token] = renewed;
  ++counts_.renewed;
  return true;
}

std::optional<LeaseTable::Blocks> LeaseTable::Take(absl::string_view tenant, absl::string_view token, int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = FindLocked(tenant, token, now_ns);
  if (it == by_token_.end()) return std::nullopt;
  ++counts_.released;
  return RemoveLocked(it->second);
}

std::optional<LeaseTable::Blocks> LeaseTable::TakeExpired(int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (by_expiry_.empty() || now_ns < by_expiry_.begin()->first) return std::nullopt;
  ++counts_.expired;
  return RemoveLocked(by_expiry_.begin());
}

LeaseTable::Blocks LeaseTable::RemoveLocked(ByExpiry::iterator lease) {
  Blocks blocks = std::move(lease->second->blocks);
  --leases_;
  blocks_ -= blocks.size();
  if (!lease->second->token.empty()) by_token_.erase(lease->second->token);
  by_expiry_.erase(lease);
  return blocks;
}

LeaseTable::Counts LeaseTable::counts() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

uint64_t LeaseTable::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return leases_;
}

uint64_t LeaseTable::blocks() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return blocks_;
}

}  // namespace quarry::server
