#include "server/cache_service.h"

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace quarry::server {
namespace {

// Far beyond any prompt; keeps block indices times tokens per block within 64 bits.
constexpr uint64_t kMaxTokens = uint64_t{1} << 56;

absl::Status CheckGroup(const Namespace& ns, absl::string_view field, uint32_t group) {
  if (group < ns.spec.groups.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ".group: ", group, " is not below ", ns.spec.groups.size(), ", the namespace's groups"));
}

absl::Status CheckWholeHashes(const Namespace& ns, absl::string_view field, absl::string_view hashes) {
  if (hashes.size() % ns.spec.hash_bytes == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ".hashes: ", hashes.size(),
                                                 " bytes is not a multiple of the namespace's hash_bytes ",
                                                 ns.spec.hash_bytes));
}

absl::Status CheckChain(const Namespace& ns, absl::string_view field, const ChainQuery& chain, uint64_t local_tokens) {
  if (absl::Status status = CheckGroup(ns, field, chain.group); !status.ok()) return status;
  if (absl::Status status = CheckWholeHashes(ns, field, chain.hashes.bytes()); !status.ok()) return status;
  if (!chain.hashes.empty() && chain.hashes.hash_bytes() != ns.spec.hash_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(field, ".hashes: of ", chain.hashes.hash_bytes(),
                                                   " bytes, not the namespace's hash_bytes ", ns.spec.hash_bytes));
  }
  const GroupSpec& group = ns.spec.groups[chain.group];
  const uint64_t max_block = kMaxTokens / group.tokens_per_block;
  if (chain.first_block > max_block) {
    return absl::InvalidArgumentError(absl::StrCat(field, ".first_block: ", chain.first_block, " exceeds ", max_block));
  }
  if (group.kind == GroupKind::kFull && chain.first_block * group.tokens_per_block > local_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(field, ".first_block: ", chain.first_block, " begins at token ",
                                                   chain.first_block * group.tokens_per_block, ", beyond local_tokens ",
                                                   local_tokens));
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
      return absl::InvalidArgumentError(absl::StrCat(field, ".group: ", chain.group, " comes twice"));
    }
    seen_groups |= 1u << chain.group;
    items += chain.hashes.size();
    if (items > max_items) {
      return absl::InvalidArgumentError(absl::StrCat(field, ".hashes: more than ", max_items, " hashes in one match"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

CacheService::CacheService(NamespaceRegistry* namespaces, BlockStore* store, ServiceMetrics* metrics,
                           wire::Limits limits)
    : namespaces_(namespaces), store_(store), metrics_(metrics), limits_(limits) {}

absl::StatusOr<OpenedNamespace> CacheService::OpenNamespace(absl::string_view tenant, absl::string_view name,
                                                            const ModelSpec& spec, bool sibling_on_mismatch) {
  return namespaces_->Open(tenant, name, spec, sibling_on_mismatch);
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
  if (absl::Status status = CheckMatch(ns, query, limits_.max_items); !status.ok()) {
    metrics_->errors[op].fetch_add(1, std::memory_order_relaxed);
    return status;
  }
  MatchResult result = store_->Match(ns, query);
  metrics_->latency[op].Record(Clock::Real()->NowNs() - start_ns);
  return result;
}

absl::Status CacheService::CheckHashes(const Namespace& ns, absl::string_view field, uint32_t group,
                                       absl::string_view hashes) const {
  if (absl::Status status = CheckGroup(ns, field, group); !status.ok()) return status;
  if (hashes.empty()) return absl::InvalidArgumentError(absl::StrCat(field, ".hashes: none"));
  if (absl::Status status = CheckWholeHashes(ns, field, hashes); !status.ok()) return status;
  if (hashes.size() / ns.spec.hash_bytes > limits_.max_items) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".hashes: ", hashes.size() / ns.spec.hash_bytes, " hashes exceed ", limits_.max_items));
  }
  return absl::OkStatus();
}

absl::Status CacheService::CheckShard(const Namespace& ns, absl::string_view field, uint32_t group,
                                      uint32_t shard) const {
  if (absl::Status status = CheckGroup(ns, field, group); !status.ok()) return status;
  const uint32_t shards = ns.spec.groups[group].shards;
  if (shard < shards) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ".shard: ", shard, " is not below ", shards, ", the group's shards"));
}

absl::Status CacheService::CheckPayloadBytes(const Namespace& ns, absl::string_view field, uint32_t group,
                                             uint64_t bytes) const {
  if (absl::Status status = CheckGroup(ns, field, group); !status.ok()) return status;
  const GroupSpec& spec = ns.spec.groups[group];
  if (spec.exact_bytes && bytes != spec.shard_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".bytes: ", bytes, " is not the group's shard_bytes ", spec.shard_bytes));
  }
  if (bytes == 0 || bytes > spec.shard_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".bytes: ", bytes, " is not in 1..", spec.shard_bytes, ", the group's shard_bytes"));
  }
  return absl::OkStatus();
}

void CacheService::Drain() {
  draining_.store(true, std::memory_order_release);
  store_->Drain();
}

}  // namespace quarry::server
