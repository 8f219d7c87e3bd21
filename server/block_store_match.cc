#include <algorithm>

#include "server/block_store_impl.h"

namespace quarry::server {

// Between LookUp and LeaseAndUnpin every complete block that was found is pinned: what is
// said to be usable cannot be evicted before the lease holds it.
struct BlockStoreImpl::Matching {
  Matching(const BlockIndex* index, const Namespace& ns, const MatchQuery& asked)
      : query(asked), batch(index, static_cast<uint16_t>(ns.index)) {
    size_t items = 0;
    for (const ChainQuery& chain : query.chains) {
      batch.Add(static_cast<uint8_t>(chain.group), chain.hashes);
      first_item.push_back(items);
      items += chain.hashes.size();
    }
    blocks.resize(items, kNoBlock);
    present.resize(items, 0);
    states.resize(items, static_cast<char>(BlockState::kAbsent));
    if (query.lease_ms != 0) lease_cost.resize(items, 0);
    for (size_t c = 0; c < query.chains.size(); ++c) {
      const ChainQuery& chain = query.chains[c];
      presence.push_back({&ns.spec.groups[chain.group], chain.first_block,
                          absl::MakeConstSpan(present).subspan(first_item[c], chain.hashes.size())});
    }
  }

  // Calls visit(item) for every usable block.
  template <typename Visitor>
  void ForEachUsable(const Usable& of, Visitor&& visit) const {
    for (size_t c = 0; c < of.blocks.size(); ++c) {
      const uint64_t first_block = query.chains[c].first_block;
      for (uint64_t b = of.blocks[c].first; b < of.blocks[c].end; ++b) visit(first_item[c] + (b - first_block));
    }
  }
  uint64_t Cost(const Usable& of) const {
    uint64_t bytes = 0;
    ForEachUsable(of, [&](size_t item) { bytes += lease_cost[item]; });
    return bytes;
  }

  const MatchQuery& query;
  BlockBatch batch;
  std::vector<size_t> first_item;  // of each chain
  Blocks blocks;                   // pinned; kNoBlock where not complete
  std::vector<uint8_t> present;
  std::string states;
  std::vector<uint64_t> lease_cost;  // bytes that a lease of the item would add
  std::vector<GroupPresence> presence;
  Usable usable;
  bool lease = false;  // one is reserved in the table
  MatchResult result;
};

namespace {

MissCause CauseOf(BlockState state) {
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

}  // namespace

MatchResult BlockStoreImpl::Match(const Namespace& ns, const MatchQuery& query) {
  Matching matching(index_.get(), ns, query);
  LookUp(&matching);
  matching.usable = UsablePrefix(query.local_tokens, matching.presence);
  FindFirstMiss(&matching);
  if (query.lease_ms != 0) ShortenToLeasable(&matching);
  if (query.touch) TouchUsable(matching);
  LeaseAndUnpin(&matching, ns);

  MatchResult& result = matching.result;
  result.usable_tokens = matching.usable.end_tokens;
  result.chains.resize(query.chains.size());
  for (size_t c = 0; c < query.chains.size(); ++c) {
    result.chains[c].states = matching.states.substr(matching.first_item[c], query.chains[c].hashes.size());
    result.chains[c].usable = matching.usable.blocks[c];
  }
  return std::move(result);
}

void BlockStoreImpl::LookUp(Matching* matching) {
  const bool wants_lease = matching->query.lease_ms != 0;
  index_->Visit(&matching->batch, [&](uint32_t item, uint32_t block) {
    if (block == kNoBlock) return;
    BlockEntry& entry = index_->entry(block);
    const BlockState state = StateLocked(entry);
    matching->states[item] = static_cast<char>(state);
    if (state != BlockState::kDram) return;
    ++entry.pins;
    matching->blocks[item] = block;
    matching->present[item] = 1;
    if (wants_lease && entry.leases == 0) matching->lease_cost[item] = SlotBytesLocked(entry);
  });
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
    for (size_t i = 0; i < group.present.size(); ++i) {
      const uint64_t begin = (group.first_block + i) * tokens;
      if (begin >= first_token) break;
      if (group.present[i] != 0 || begin + tokens <= end_tokens) continue;
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

// What is said to be usable is leased; what cannot be leased is not usable.
void BlockStoreImpl::ShortenToLeasable(Matching* matching) {
  Usable& usable = matching->usable;
  const uint64_t local_tokens = matching->query.local_tokens;
  if (usable.end_tokens == local_tokens) return;
  const auto fits = [&](const Usable& candidate) {
    const int64_t leased = leased_bytes_.load(std::memory_order_relaxed);
    return leased + static_cast<int64_t>(matching->Cost(candidate)) <= static_cast<int64_t>(max_leased_bytes_);
  };
  const auto up_to = [&](uint64_t tokens) {
    // Hides every block that ends beyond, so that no later end is legal.
    std::vector<GroupPresence> shorter = matching->presence;
    for (GroupPresence& group : shorter) {
      const uint64_t blocks = tokens / group.spec->tokens_per_block;
      const uint64_t kept = blocks > group.first_block ? blocks - group.first_block : 0;
      group.present = group.present.first(std::min<uint64_t>(kept, group.present.size()));
    }
    return UsablePrefix(local_tokens, shorter);
  };

  matching->lease = leases_.Reserve();
  if (!matching->lease || !fits(usable)) Tick();
  if (!matching->lease) matching->lease = leases_.Reserve();
  if (matching->lease && fits(usable)) return;

  uint64_t low = local_tokens;  // fits, as nothing is leased
  uint64_t high = matching->lease ? usable.end_tokens : local_tokens;
  Usable best = up_to(low);
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    Usable candidate = up_to(middle);
    if (fits(candidate)) {
      low = middle;
      best = std::move(candidate);
    } else {
      high = middle - 1;
    }
  }
  usable = std::move(best);
  if (matching->lease && usable.end_tokens == local_tokens) {
    leases_.Unreserve();
    matching->lease = false;
  }
}

void BlockStoreImpl::TouchUsable(const Matching& matching) {
  struct Touched {
    uint64_t end_tokens;
    uint32_t block;
  };
  std::vector<Touched> touched;
  size_t groups = 0;
  for (size_t c = 0; c < matching.presence.size(); ++c) {
    const BlockRange range = matching.usable.blocks[c];
    if (range.first == range.end) continue;
    ++groups;
    const uint32_t* chain = &matching.blocks[matching.first_item[c]];
    for (uint64_t b = range.first; b < range.end; ++b) {
      touched.push_back(
          {(b + 1) * matching.presence[c].spec->tokens_per_block, chain[b - matching.presence[c].first_block]});
    }
  }
  if (groups > 1) {
    std::stable_sort(touched.begin(), touched.end(),
                     [](const Touched& a, const Touched& b) { return a.end_tokens < b.end_tokens; });
  }
  Blocks chain;
  chain.reserve(touched.size());
  for (const Touched& t : touched) chain.push_back(t.block);
  policy_->Touch(chain);
}

void BlockStoreImpl::LeaseAndUnpin(Matching* matching, const Namespace& ns) {
  std::vector<uint8_t> usable(matching->blocks.size(), 0);
  uint64_t hits = 0;
  matching->ForEachUsable(matching->usable, [&](size_t item) {
    usable[item] = 1;
    ++hits;
  });
  match_hits_.fetch_add(hits, std::memory_order_relaxed);

  Blocks leased;
  Blocks returned;
  if (matching->lease) leased.reserve(hits);
  index_->VisitShards(&matching->batch, [&](uint32_t item) {
    const uint32_t block = matching->blocks[item];
    if (block == kNoBlock) return;
    BlockEntry& entry = index_->entry(block);
    --entry.pins;
    if (matching->lease && usable[item]) {
      LeaseLocked(entry);
      leased.push_back(block);
    } else {
      UnpinnedLocked(block, &returned);
    }
  });
  policy_->Return(returned);
  if (!matching->lease) return;
  matching->result.lease_ms = std::min(matching->query.lease_ms, options_.max_lease_ms);
  matching->result.lease = leases_.Add(ns.tenant, ns.index, ExpiryNs(matching->result.lease_ms), std::move(leased));
}

}  // namespace quarry::server
