#include "server/cache_service.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace quarry::server {
namespace {

// Far beyond any prompt; keeps block indices times tokens per block within 64 bits.
constexpr uint64_t kMaxTokens = uint64_t{1} << 56;

// Loaded ahead for one match; and for all of them, what is on its way.
constexpr uint64_t kPrefetchBytes = 32 << 20;
constexpr uint64_t kMaxPrefetchBytes = 256 << 20;

// A field of what `prefix` names, which may be the request itself: then it is empty.
std::string Field(absl::string_view prefix, absl::string_view name) {
  return prefix.empty() ? std::string(name) : absl::StrCat(prefix, ".", name);
}

absl::Status CheckGroupOf(const Namespace& ns, absl::string_view field, uint32_t group) {
  if (group < ns.spec.groups.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Field(field, "group"), ": ", group, " is not below ",
                                                 ns.spec.groups.size(), ", the namespace's groups"));
}

absl::Status CheckWholeHashes(const Namespace& ns, absl::string_view field, absl::string_view hashes) {
  if (hashes.size() % ns.spec.hash_bytes == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Field(field, "hashes"), ": ", hashes.size(),
                                                 " bytes is not a multiple of the namespace's hash_bytes ",
                                                 ns.spec.hash_bytes));
}

absl::Status CheckChain(const Namespace& ns, absl::string_view field, const ChainQuery& chain, uint64_t local_tokens) {
  if (absl::Status status = CheckGroupOf(ns, field, chain.group); !status.ok()) return status;
  if (absl::Status status = CheckWholeHashes(ns, field, chain.hashes.bytes()); !status.ok()) return status;
  if (!chain.hashes.empty() && chain.hashes.hash_bytes() != ns.spec.hash_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(field, ".hashes: of ", chain.hashes.hash_bytes(),
                                                   " bytes, not the namespace's hash_bytes ", ns.spec.hash_bytes));
  }
  const GroupSpec& group = ns.spec.groups[chain.group];
  const uint64_t max_block = kMaxTokens / group.tokens_per_block;
  if (chain.first_block > max_block) {
    return absl::InvalidArgumentError(
        absl::StrCat(Field(field, "first_block"), ": ", chain.first_block, " exceeds ", max_block));
  }
  if (group.kind == GroupKind::kFull && chain.first_block * group.tokens_per_block > local_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(Field(field, "first_block"), ": ", chain.first_block,
                                                   " begins at token ", chain.first_block * group.tokens_per_block,
                                                   ", beyond local_tokens ", local_tokens));
  }
  return absl::OkStatus();
}

absl::Status CheckMatch(const Namespace& ns, const MatchQuery& query, uint32_t max_items) {
  if (query.local_tokens > kMaxTokens) {
    return absl::InvalidArgumentError(absl::StrCat("local_tokens: ", query.local_tokens, " exceeds ", kMaxTokens));
  }
  if (query.chains.empty()) return absl::InvalidArgumentError("chains: none");
  uint32_t seen_groups = 0;
  static_assert(kMaxGroups <= 32);
  uint64_t items = 0;
  for (size_t i = 0; i < query.chains.size(); ++i) {
    const ChainQuery& chain = query.chains[i];
    const std::string field = absl::StrCat("chains[", i, "]");
    if (absl::Status status = CheckChain(ns, field, chain, query.local_tokens); !status.ok()) return status;
    if ((seen_groups >> chain.group & 1) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(Field(field, "group"), ": ", chain.group, " comes twice"));
    }
    seen_groups |= 1u << chain.group;
    items += chain.hashes.size();
    if (items > max_items) {
      return absl::InvalidArgumentError(absl::StrCat(field, ".hashes: more than ", max_items, " hashes in one match"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPrefetch(const Namespace& ns, const MatchQuery& query) {
  if (query.prefetch_shards.size() > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("prefetch_shards: ", query.prefetch_shards.size(), " exceed ", kMaxShards));
  }
  for (size_t i = 0; i < query.prefetch_shards.size(); ++i) {
    for (const ChainQuery& chain : query.chains) {
      const uint32_t shards = ns.spec.groups[chain.group].shards;
      if (query.prefetch_shards[i] < shards) continue;
      return absl::InvalidArgumentError(absl::StrCat("prefetch_shards[", i, "]: ", query.prefetch_shards[i],
                                                     " is not below ", shards, ", the shards of group ", chain.group));
    }
  }
  return absl::OkStatus();
}

void CountFor(const Namespace& ns, const MatchQuery& query, const MatchResult& result) {
  uint64_t hashes = 0;
  uint64_t hits = 0;
  for (size_t c = 0; c < query.chains.size(); ++c) {
    hashes += query.chains[c].hashes.size();
    hits += result.chains[c].usable.end - result.chains[c].usable.first;
  }
  ns.match_hashes.fetch_add(hashes, std::memory_order_relaxed);
  ns.match_hits.fetch_add(hits, std::memory_order_relaxed);
  ns.saved_tokens.fetch_add(result.usable_tokens - query.local_tokens, std::memory_order_relaxed);
}

}  // namespace

CacheService::CacheService(NamespaceRegistry* namespaces, BlockStore* store, ServiceMetrics* metrics,
                           wire::Limits limits)
    : namespaces_(namespaces), store_(store), metrics_(metrics), limits_(limits) {}

absl::StatusOr<OpenedNamespace> CacheService::OpenNamespace(absl::string_view tenant, absl::string_view name,
                                                            const ModelSpec& spec, bool sibling_on_mismatch,
                                                            uint64_t ttl_ms) {
  auto opened = namespaces_->Open(tenant, name, spec, sibling_on_mismatch, ttl_ms);
  if (opened.ok() && opened->ns->ttl_ms != 0) store_->ExpectExpiry();
  return opened;
}

absl::Status CacheService::SetTtl(absl::string_view tenant, absl::string_view name, uint64_t ttl_ms) {
  const absl::StatusOr<const Namespace*> ns = FindNamespace(tenant, name);
  if (!ns.ok()) return ns.status();
  if (absl::Status status = namespaces_->SetTtl(**ns, ttl_ms); !status.ok()) return status;
  if (ttl_ms != 0) store_->ExpectExpiry();
  return absl::OkStatus();
}

absl::StatusOr<const Namespace*> CacheService::FindNamespace(absl::string_view tenant, absl::string_view name) const {
  const Namespace* ns = namespaces_->Find(tenant, name);
  if (ns != nullptr) return ns;
  return absl::NotFoundError(absl::StrCat("namespace \"", name, "\": not known here"));
}

absl::StatusOr<MatchResult> CacheService::Match(const Namespace& ns, const MatchQuery& query) {
  const int64_t start_ns = Clock::Real()->NowNs();
  const size_t op = static_cast<size_t>(Op::kMatch);
  metrics_->requests[op].fetch_add(1, std::memory_order_relaxed);
  absl::Status status = CheckMatch(ns, query, limits_.max_items);
  if (status.ok()) status = CheckPrefetch(ns, query);
  if (!status.ok()) {
    metrics_->errors[op].fetch_add(1, std::memory_order_relaxed);
    return status;
  }
  MatchResult result = store_->Match(ns, query);
  CountFor(ns, query, result);
  if (!query.prefetch_shards.empty()) Prefetch(ns, query, result);
  metrics_->latency[op].Record(Clock::Real()->NowNs() - start_ns);
  return result;
}

void CacheService::Prefetch(const Namespace& ns, const MatchQuery& query, const MatchResult& result) {
  uint64_t left_bytes = kPrefetchBytes;
  for (size_t c = 0; c < query.chains.size(); ++c) {
    const ChainQuery& chain = query.chains[c];
    const ChainMatch& matched = result.chains[c];
    const uint64_t shard_bytes = ns.spec.groups[chain.group].shard_bytes;
    const uint64_t block_bytes = shard_bytes * query.prefetch_shards.size();
    std::string cold;
    for (uint64_t block = matched.usable.first; block < matched.usable.end && left_bytes >= block_bytes; ++block) {
      const size_t i = block - chain.first_block;
      if (matched.states[i] != static_cast<char>(BlockState::kSsd)) continue;
      cold.append(chain.hashes[i].data(), chain.hashes[i].size());
      left_bytes -= block_bytes;
    }
    if (cold.empty()) continue;
    const HashSpan hashes(cold, ns.spec.hash_bytes);
    for (const uint32_t shard : query.prefetch_shards) {
      const uint64_t bytes = hashes.size() * shard_bytes;
      if (prefetching_bytes_->fetch_add(bytes) + bytes > kMaxPrefetchBytes) {
        prefetching_bytes_->fetch_sub(bytes);
        return;
      }
      store_->Load(ns, chain.group, shard, hashes, [under_way = prefetching_bytes_, shard_bytes](size_t, const auto&) {
        under_way->fetch_sub(shard_bytes);
      });
    }
  }
}

absl::Status CacheService::CheckHashes(const Namespace& ns, absl::string_view field, uint32_t group,
                                       absl::string_view hashes) const {
  if (absl::Status status = CheckGroupOf(ns, field, group); !status.ok()) return status;
  if (hashes.empty()) return absl::InvalidArgumentError(absl::StrCat(field, ".hashes: none"));
  if (absl::Status status = CheckWholeHashes(ns, field, hashes); !status.ok()) return status;
  if (hashes.size() / ns.spec.hash_bytes > limits_.max_items) {
    return absl::InvalidArgumentError(absl::StrCat(Field(field, "hashes"), ": ", hashes.size() / ns.spec.hash_bytes,
                                                   " hashes exceed ", limits_.max_items));
  }
  return absl::OkStatus();
}

absl::Status CacheService::CheckShard(const Namespace& ns, absl::string_view field, uint32_t group,
                                      uint32_t shard) const {
  if (absl::Status status = CheckGroupOf(ns, field, group); !status.ok()) return status;
  const uint32_t shards = ns.spec.groups[group].shards;
  if (shard < shards) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Field(field, "shard"), ": ", shard, " is not below ", shards, ", the group's shards"));
}

absl::Status CacheService::CheckPayloadBytes(const Namespace& ns, absl::string_view field, uint32_t group,
                                             uint64_t bytes) const {
  if (absl::Status status = CheckGroupOf(ns, field, group); !status.ok()) return status;
  const GroupSpec& spec = ns.spec.groups[group];
  if (spec.exact_bytes && bytes != spec.shard_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(Field(field, "bytes"), ": ", bytes, " is not the group's shard_bytes ", spec.shard_bytes));
  }
  if (bytes == 0 || bytes > spec.shard_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(Field(field, "bytes"), ": ", bytes, " is not in 1..",
                                                   spec.shard_bytes, ", the group's shard_bytes"));
  }
  return absl::OkStatus();
}

absl::Status CacheService::CheckGroup(const Namespace& ns, uint32_t group) const { return CheckGroupOf(ns, {}, group); }

absl::Status CacheService::CheckNotDraining() const {
  return draining() ? absl::UnavailableError("the node is draining") : absl::OkStatus();
}

absl::StatusOr<uint64_t> CacheService::Flush(absl::string_view tenant, absl::string_view name) {
  return Empty(tenant, name, &NamespaceRegistry::Flush);
}

absl::StatusOr<uint64_t> CacheService::Retire(absl::string_view tenant, absl::string_view name) {
  return Empty(tenant, name, &NamespaceRegistry::Retire);
}

absl::StatusOr<uint64_t> CacheService::Empty(
    absl::string_view tenant, absl::string_view name,
    absl::StatusOr<uint32_t> (NamespaceRegistry::*renumber)(const Namespace&)) {
  std::lock_guard<std::mutex> lock(empty_mutex_);
  const absl::StatusOr<const Namespace*> ns = FindNamespace(tenant, name);
  if (!ns.ok()) return ns.status();
  const uint64_t blocks = store_->use(**ns).blocks;
  // Watchers first: then no event of the new contents can come before that of the clearing,
  // and none of the old behind it.
  if (absl::Status status = namespaces_->CheckNumberLeft(); !status.ok()) return status;
  store_->Clear((*ns)->index);
  const absl::StatusOr<uint32_t> before = (namespaces_->*renumber)(**ns);
  if (!before.ok()) return before.status();
  return blocks;
}

void CacheService::Drain() {
  draining_.store(true, std::memory_order_release);
  store_->Drain();
}

}  // namespace quarry::server
