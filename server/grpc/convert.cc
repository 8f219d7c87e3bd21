#include "server/grpc/convert.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::server {
namespace {

void ToProto(const GroupSpec& group, v1::GroupSpec* out) {
  out->set_kind(static_cast<v1::GroupKind>(group.kind));
  out->set_tokens_per_block(group.tokens_per_block);
  out->set_window_tokens(group.window_tokens);
  out->set_shards(group.shards);
  out->set_shard_bytes(group.shard_bytes);
  out->set_exact_bytes(group.exact_bytes);
}

void ToProto(const ModelSpec& spec, v1::ModelSpec* out) {
  out->set_engine(spec.engine);
  out->set_layout(spec.layout);
  out->set_model(spec.model);
  out->set_weights_revision(spec.weights_revision);
  out->set_adapter_digest(spec.adapter_digest);
  out->set_kv_dtype(spec.kv_dtype);
  out->set_quantization(spec.quantization);
  out->set_hash_scheme(spec.hash_scheme);
  out->set_hash_seed(spec.hash_seed);
  out->set_hash_bytes(spec.hash_bytes);
  out->set_allow_short_hashes(spec.allow_short_hashes);
  out->set_layers(spec.layers);
  for (const GroupSpec& group : spec.groups) ToProto(group, out->add_groups());
}

}  // namespace

absl::StatusOr<ModelSpec> FromProto(const v1::ModelSpec& spec) {
  ModelSpec out;
  out.engine = spec.engine();
  out.layout = spec.layout();
  out.model = spec.model();
  out.weights_revision = spec.weights_revision();
  out.adapter_digest = spec.adapter_digest();
  out.kv_dtype = spec.kv_dtype();
  out.quantization = spec.quantization();
  out.hash_scheme = spec.hash_scheme();
  out.hash_seed = spec.hash_seed();
  out.hash_bytes = spec.hash_bytes();
  out.allow_short_hashes = spec.allow_short_hashes();
  out.layers = spec.layers();
  for (int i = 0; i < spec.groups_size(); ++i) {
    const v1::GroupSpec& group = spec.groups(i);
    if (group.kind() == v1::GROUP_KIND_UNSPECIFIED || !v1::GroupKind_IsValid(group.kind())) {
      return absl::InvalidArgumentError(absl::StrCat("spec.groups[", i, "].kind: ", static_cast<int>(group.kind()),
                                                     " is none of FULL, WINDOW, STATE"));
    }
    out.groups.push_back({static_cast<GroupKind>(group.kind()), group.tokens_per_block(), group.window_tokens(),
                          group.shards(), group.shard_bytes(), group.exact_bytes()});
  }
  return out;
}

absl::StatusOr<std::string> PackHashes(const Hashes& hashes, absl::string_view field, uint32_t hash_bytes,
                                       uint32_t max_hashes) {
  if (static_cast<uint32_t>(hashes.size()) > max_hashes) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", hashes.size(), " hashes, at most ", max_hashes));
  }
  std::string packed;
  packed.reserve(size_t{hash_bytes} * static_cast<size_t>(hashes.size()));
  for (int i = 0; i < hashes.size(); ++i) {
    if (hashes[i].size() != hash_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, "[", i, "]: ", hashes[i].size(), " bytes, the namespace's hash_bytes is ", hash_bytes));
    }
    packed += hashes[i];
  }
  return packed;
}

absl::StatusOr<PackedChains> PackChains(const v1::MatchRequest& request, uint32_t hash_bytes, uint32_t max_hashes) {
  if (request.chains_size() > static_cast<int>(kMaxGroups)) {
    return absl::InvalidArgumentError(
        absl::StrCat("chains: ", request.chains_size(), ", at most ", kMaxGroups, " (one a group)"));
  }
  PackedChains packed;
  packed.hashes.reserve(request.chains_size());  // the chains view these strings: they must not move
  uint64_t total = 0;
  for (int c = 0; c < request.chains_size(); ++c) {
    const v1::MatchChain& chain = request.chains(c);
    const std::string field = absl::StrCat("chains[", c, "].hashes");
    total += static_cast<uint64_t>(chain.hashes_size());
    if (total > max_hashes) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": ", total, " hashes up to here, at most ", max_hashes, " in a request"));
    }
    auto bytes = PackHashes(chain.hashes(), field, hash_bytes, max_hashes);
    if (!bytes.ok()) return bytes.status();
    packed.hashes.push_back(*std::move(bytes));
    packed.chains.push_back({chain.group(), chain.first_block(), HashSpan(packed.hashes.back(), hash_bytes)});
  }
  return packed;
}

void ToProto(const MatchResult& result, v1::MatchResponse* response) {
  response->set_usable_tokens(result.usable_tokens);
  for (const ChainMatch& chain : result.chains) {
    v1::MatchChainResult* out = response->add_chains();
    out->mutable_states()->Reserve(static_cast<int>(chain.states.size()));
    for (const char state : chain.states) out->add_states(static_cast<v1::BlockState>(state));
    out->set_first_usable(chain.usable.first);
    out->set_end_usable(chain.usable.end);
  }
  response->set_first_miss(static_cast<v1::MissCause>(result.first_miss));
  response->set_first_miss_chain(result.first_miss_chain);
  response->set_first_miss_block(result.first_miss_block);
  response->set_lease(result.lease);
  response->set_lease_ms(result.lease_ms);
  response->set_lease_limit(static_cast<v1::LeaseLimit>(result.lease_limit));
}

void ToProto(const StoreStats& stats, v1::StatsResponse* response) {
  response->set_arena_bytes(stats.arena_bytes);
  response->set_used_bytes(stats.used_bytes);
  response->set_payload_bytes(stats.payload_bytes);
  response->set_leased_bytes(stats.leased_bytes);
  response->set_blocks(stats.blocks);
  response->set_complete_blocks(stats.complete_blocks);
  response->set_leases(stats.leases);
  response->set_index_bytes(stats.index_bytes);
  response->set_match_hashes(stats.match_hashes);
  response->set_match_hits(stats.match_hits);
  for (int i = 1; i < kMissCauses; ++i) {
    v1::CauseCount* count = response->add_misses();
    count->set_cause(static_cast<v1::MissCause>(i));
    count->set_count(stats.misses[i]);
  }
  for (int i = 1; i < kRefusalReasons; ++i) {
    v1::RefusalCount* count = response->add_refusals();
    count->set_reason(static_cast<v1::RefusalReason>(i));
    count->set_count(stats.refusals[i]);
  }
  response->set_stored_shards(stats.stored_shards);
  response->set_stored_bytes(stats.stored_bytes);
  response->set_evicted_blocks(stats.evicted_blocks);
  for (const StoreStats::SizeClass& size_class : stats.size_classes) {
    v1::SizeClassStats* out = response->add_size_classes();
    out->set_slot_bytes(size_class.slot_bytes);
    out->set_slabs(size_class.slabs);
    out->set_used_slots(size_class.used_slots);
    out->set_free_slots(size_class.free_slots);
  }
}

void ToProto(BlockInfo&& block, v1::BlockInfo* out) {
  out->set_hash(std::move(block.hash));
  out->set_group(block.group);
  out->set_state(static_cast<v1::BlockState>(block.state));
  out->set_miss(static_cast<v1::MissCause>(block.miss));
  out->set_depth(block.depth);
  out->set_bytes(block.bytes);
  out->set_shards_there(block.shards_there);
  out->set_leases(block.leases);
  out->set_age_ms(block.age_ms);
  out->set_no_ssd(block.no_ssd);
}

void ToProto(const Namespace& ns, v1::NamespaceInfo* info) {
  info->set_tenant(ns.tenant);
  info->set_name(ns.name);
  info->set_id(ns.id);
  ToProto(ns.spec, info->mutable_spec());
  info->set_ttl_ms(ns.ttl_ms.load(std::memory_order_relaxed));
}

}  // namespace quarry::server
