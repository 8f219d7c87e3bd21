#include <algorithm>

#include "absl/container/inlined_vector.h"
#include "server/block_store_impl.h"

namespace quarry::server {
// FindBlocks leases, or pins, every complete block at once, in the one visit to its index shard;
// those that turn out not to be usable are let go of at the end. So what is said to be
// usable cannot be evicted in between.
struct BlockStoreImpl::Matching {
  Matching(const BlockIndex* index, const Namespace& ns, const MatchQuery& asked)
      : query(asked), leases(asked.lease_ms != 0), batch(index, static_cast<uint16_t>(ns.index)) {
    size_t items = 0;
    for (const ChainQuery& chain : query.chains) {
      batch.Add(static_cast<uint8_t>(chain.group), chain.hashes);
      first_item.push_back(items);
      items += chain.hashes.size();
    }
    blocks.resize(items, kNoBlock);
    present.resize(items, 0);
    states.resize(items, static_cast<char>(BlockState::kAbsent));
    held.reserve(items);
    if (leases) lease_cost.resize(items, 0);
    for (size_t c = 0; c < query.chains.size(); ++c) {
      const ChainQuery& chain = query.chains[c];
      presence.push_back({&ns.spec.groups[chain.group], chain.first_block,
                          absl::MakeConstSpan(present).subspan(first_item[c], chain.hashes.size())});
    }
    usable = Nothing();
  }

  Usable Nothing() const { return {query.local_tokens, std::vector<BlockRange>(query.chains.size())}; }
  bool holds() const { return leases || query.pin; }
  // The chain's item of a block.
  size_t ItemOf(size_t chain, uint64_t block) const {
    return first_item[chain] + (block - query.chains[chain].first_block);
  }
  // Calls visit(item) for every usable block.
  template <typename Visitor>
  void ForEachUsable(const Usable& of, Visitor&& visit) const {
    for (size_t c = 0; c < of.blocks.size(); ++c) {
      for (uint64_t b = of.blocks[c].first; b < of.blocks[c].end; ++b) visit(ItemOf(c, b));
    }
  }

  const MatchQuery& query;
  const bool leases;
  BlockBatch batch;
  std::vector<size_t> first_item;  // of each chain
  Blocks blocks;                   // kNoBlock where not complete
  Blocks held;                     // those that are leased or pinned, by index shard
  std::vector<uint8_t> present;
  std::string states;
  std::vector<uint64_t> lease_cost;  // bytes that nothing else leases
  int64_t added_bytes = 0;           // the sum
  std::vector<GroupPresence> presence;
  Usable usable;
  MatchResult result;
};

MatchResult BlockStoreImpl::Match(const Namespace& ns, const MatchQuery& query) {
  Matching matching(index_.get(), ns, query);
  FindBlocks(ns, &matching);
  matching.usable = UsablePrefix(query.local_tokens, matching.presence);
  FindFirstMiss(&matching);
  Bound(&matching);
  if (query.touch) {
    TouchUsable(matching);
    CountUses(matching);
  }
  if (matching.holds()) LetGoOfUnusable(&matching);

  MatchResult& result = matching.result;
  const uint64_t hits = BlockCount(matching.usable);
  match_hits_.fetch_add(hits, std::memory_order_relaxed);
  if (ssd_ != nullptr) CountSsdHits(matching);
  if (matching.held.size() < matching.held.capacity() / 2) matching.held.shrink_to_fit();
  if (hits != 0 && matching.leases) {
    result.lease_ms = std::min(query.lease_ms, options_.max_lease_ms);
    result.lease = leases_.Add(ns.tenant, ns.index, ExpiryNs(result.lease_ms), std::move(matching.held));
  } else if (hits != 0 && query.pin) {
    result.pins = BlockPins(this, std::move(matching.held));
  }
  result.usable_tokens = matching.usable.end_tokens;
  result.chains.resize(query.chains.size());
  for (size_t c = 0; c < query.chains.size(); ++c) {
    result.chains[c].states = matching.states.substr(matching.first_item[c], query.chains[c].hashes.size());
    result.chains[c].usable = matching.usable.blocks[c];
  }
  return std::move(result);
}

void BlockStoreImpl::FindBlocks(const Namespace& ns, Matching* matching) {
  const Lifetime lifetime = LifetimeOf(ns);
  Leftovers leftovers;
  index_->Visit(&matching->batch, [&](uint32_t item, uint32_t block) {
    if (block == kNoBlock) return;
    if (IsOverLocked(block, lifetime)) {
      if (!ExpireLocked(block, lifetime, &leftovers)) {
        ghosts_.Remember(matching->batch.hash(item), MissCause::kExpired);
      }
      return;
    }
    BlockEntry& entry = index_->entry(block);
    const BlockState state = StateLocked(block);
    matching->states[item] = static_cast<char>(state);
    if (!IsComplete(state)) return;
    if (matching->query.touch) {
      entry.used = 1;
      if (state == BlockState::kSsd) UseRecordsLocked(block);
    }
    matching->blocks[item] = block;
    matching->present[item] = 1;
    if (!matching->holds()) return;
    matching->held.push_back(block);
    if (!matching->leases) {
      ++entry.pins;
    } else if (++entry.leases == 1) {
      matching->lease_cost[item] = SlotBytesLocked(entry);
      matching->added_bytes += static_cast<int64_t>(matching->lease_cost[item]);
    }
  });
  if (matching->leases) leased_bytes_.fetch_add(matching->added_bytes, std::memory_order_relaxed);
}

void BlockStoreImpl::CountSsdHits(const Matching& matching) {
  uint64_t hits = 0;
  matching.ForEachUsable(matching.usable, [&](size_t item) {
    if (matching.states[item] == static_cast<char>(BlockState::kSsd)) ++hits;
  });
  match_ssd_hits_.fetch_add(hits, std::memory_order_relaxed);
}

// For what caches of other sizes would hit: so all that was asked for, usable or not.
void BlockStoreImpl::CountUses(const Matching& matching) {
  absl::InlinedVector<uint64_t, 32> followed;
  const size_t items = matching.batch.size();
  const uint64_t threshold = reuse_.threshold();
  for (size_t i = 0; i < items; ++i) {
    const uint64_t hash = matching.batch.hash(i);
    if (hash < threshold) followed.push_back(hash);
  }
  reuse_.Use(followed, items);
}

// The first block beyond the usable end that is not there, in tokens; of several chains'
// the first chain's.
void BlockStoreImpl::FindFirstMiss(Matching* matching) {
  const uint64_t end_tokens = matching->usable.end_tokens;
  uint64_t first_token = UINT64_MAX;
  size_t first_item = 0;
  for (size_t c = 0; c < matching->presence.size(); ++c) {
    const GroupPresence& group = matching->presence[c];
    const uint64_t tokens = group.spec->tokens_per_block;
    const uint64_t beyond = std::max(end_tokens / tokens, group.first_block) - group.first_block;
    for (size_t i = beyond; i < group.present.size(); ++i) {
      const uint64_t begin = (group.first_block + i) * tokens;
      if (begin >= first_token) break;
      if (group.present[i] != 0) continue;
      first_token = begin;
      first_item = matching->first_item[c] + i;
      matching->result.first_miss_chain = static_cast<uint32_t>(c);
      matching->result.first_miss_block = group.first_block + i;
      break;
    }
  }
  match_hashes_.fetch_add(matching->batch.size(), std::memory_order_relaxed);
  if (first_token == UINT64_MAX) return;
  const MissCause cause = CauseOf(static_cast<BlockState>(matching->states[first_item]));
  matching->result.first_miss = cause != MissCause::kNone ? cause : ghosts_.Recall(matching->batch.hash(first_item));
  CountMiss(matching->result.first_miss);
}

void BlockStoreImpl::Bound(Matching* matching) {
  Usable& usable = matching->usable;
  const MatchQuery& query = matching->query;
  if (BlockCount(usable) > query.max_blocks) {
    usable = LongestUsable(query.local_tokens, matching->presence,
                           [&](const Usable& candidate) { return BlockCount(candidate) <= query.max_blocks; });
  }
  if (BlockCount(usable) < query.min_blocks) usable = matching->Nothing();
  if (matching->leases && BlockCount(usable) != 0) ReserveLease(matching);
}

// What is said to be usable is leased; what cannot be leased is not usable.
void BlockStoreImpl::ReserveLease(Matching* matching) {
  Usable& usable = matching->usable;
  const uint64_t blocks = BlockCount(usable);
  const uint64_t most = std::min<uint64_t>(blocks, options_.max_lease_blocks);
  LeaseTable::Room room;
  const auto fits = [&](const Usable& candidate) {
    int64_t bytes = leased_bytes_.load(std::memory_order_relaxed);
    if (bytes > max_leased_bytes_) {
      bytes -= matching->added_bytes;
      matching->ForEachUsable(candidate,
                              [&](size_t item) { bytes += static_cast<int64_t>(matching->lease_cost[item]); });
    }
    return BlockCount(candidate) <= room.blocks && bytes <= max_leased_bytes_;
  };
  room = leases_.Reserve(most);
  if (room.blocks < most || !fits(usable)) {
    // Leases whose time is over may make room.
    EndExpiredLeases();
    if (room.blocks != 0) leases_.Shrink(room.blocks, 0);
    room = leases_.Reserve(most);
  }
  if (!fits(usable)) {
    matching->result.lease_limit = room.blocks == blocks ? LeaseLimit::kBytes
                                   : room.blocks == most ? LeaseLimit::kBlocks
                                                         : room.limit;
    lease_limits_[static_cast<int>(matching->result.lease_limit)].fetch_add(1, std::memory_order_relaxed);
    usable = LongestUsable(matching->query.local_tokens, matching->presence, fits);
    if (BlockCount(usable) < matching->query.min_blocks) usable = matching->Nothing();
  }
  if (room.blocks != 0) leases_.Shrink(room.blocks, BlockCount(usable));
}

void BlockStoreImpl::TouchUsable(const Matching& matching) {
  struct Touched {
    uint64_t end_tokens;
    uint32_t block;
  };
  const absl::Span<const uint32_t> blocks = matching.blocks;
  if (matching.usable.blocks.size() == 1) {
    const BlockRange range = matching.usable.blocks[0];
    if (range.first != range.end) {
      policy_->Touch(blocks.subspan(matching.ItemOf(0, range.first), range.end - range.first));
    }
    return;
  }
  std::vector<Touched> touched;
  for (size_t c = 0; c < matching.presence.size(); ++c) {
    const BlockRange range = matching.usable.blocks[c];
    for (uint64_t b = range.first; b < range.end; ++b) {
      touched.push_back({(b + 1) * matching.presence[c].spec->tokens_per_block, blocks[matching.ItemOf(c, b)]});
    }
  }
  std::stable_sort(touched.begin(), touched.end(),
                   [](const Touched& a, const Touched& b) { return a.end_tokens < b.end_tokens; });
  Blocks chain;
  chain.reserve(touched.size());
  for (const Touched& t : touched) chain.push_back(t.block);
  policy_->Touch(chain);
}

void BlockStoreImpl::LetGoOfUnusable(Matching* matching) {
  if (matching->held.size() == BlockCount(matching->usable)) return;
  std::vector<uint8_t> usable(matching->blocks.size(), 0);
  matching->ForEachUsable(matching->usable, [&](size_t item) { usable[item] = 1; });
  Blocks returned;
  matching->held.clear();
  index_->VisitShards(&matching->batch, [&](uint32_t item) {
    const uint32_t block = matching->blocks[item];
    if (block == kNoBlock) return;
    if (usable[item] != 0) {
      matching->held.push_back(block);
    } else if (matching->leases) {
      UnleaseLocked(block, &returned);
    } else {
      UnpinLocked(block, &returned);
    }
  });
  policy_->Return(returned);
}

}  // namespace quarry::server
