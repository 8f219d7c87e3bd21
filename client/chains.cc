#include "client/chains.h"

#include <algorithm>
#include <bitset>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lease_access.h"

namespace quarry {
namespace {

template <typename... Parts>
absl::Status Bad(size_t chain, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("chains[", chain, "].", parts...));
}

bool KnownState(char state) { return static_cast<uint8_t>(state) <= static_cast<uint8_t>(BlockState::kInFlight); }

// False when the states or the usable range do not belong to the chain that was asked about.
bool FromWire(const wire::ChainState& state, const ChainShape& asked, MatchResult::Chain* result) {
  const bool nothing_usable = state.first_usable >= state.end_usable;
  const bool in_chain = state.first_usable >= asked.first_block && state.end_usable - asked.first_block <= asked.hashes;
  if (state.states.size() != asked.hashes || !(nothing_usable || in_chain)) return false;
  if (!std::all_of(state.states.begin(), state.states.end(), KnownState)) return false;
  result->states.reserve(state.states.size());
  for (const char byte : state.states) result->states.push_back(static_cast<BlockState>(byte));
  result->first_usable = nothing_usable ? asked.first_block : state.first_usable;
  result->end_usable = nothing_usable ? asked.first_block : state.end_usable;
  return true;
}

}  // namespace

absl::Status CheckChains(const ModelSpec& spec, const wire::Limits& limits, absl::Span<const Chain> chains) {
  if (chains.empty()) return absl::InvalidArgumentError("chains: at least 1");
  std::bitset<kMaxGroups> seen;
  size_t hashes = 0;
  for (size_t i = 0; i < chains.size(); ++i) {
    const Chain& chain = chains[i];
    const size_t groups = std::min<size_t>(spec.groups.size(), kMaxGroups);
    if (chain.group >= groups) return Bad(i, "group: 0 to ", groups - 1, ", got ", chain.group);
    if (seen[chain.group]) return Bad(i, "group: ", chain.group, " has a chain already");
    seen.set(chain.group);
    if (chain.hashes.empty()) return Bad(i, "hashes: at least 1");
    if (chain.hashes.hash_bytes() != spec.hash_bytes) {
      return Bad(i, "hashes: of ", spec.hash_bytes, " bytes each, got ", chain.hashes.hash_bytes());
    }
    if (chain.hashes.bytes().size() % spec.hash_bytes != 0) {
      return Bad(i, "hashes: ", chain.hashes.bytes().size(), " bytes are no multiple of ", spec.hash_bytes);
    }
    hashes += chain.hashes.size();
    if (hashes > limits.max_items) {
      return Bad(i, "hashes: at most ", limits.max_items, " in all chains (limits.max_items)");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckChainStarts(const ModelSpec& spec, uint64_t local_tokens, absl::Span<const Chain> chains) {
  for (size_t i = 0; i < chains.size(); ++i) {
    const GroupSpec& group = spec.groups[chains[i].group];
    const uint64_t last_start = local_tokens / group.tokens_per_block;
    if (group.kind == GroupKind::kFull && chains[i].first_block > last_start) {
      return Bad(i, "first_block: at most ", last_start, ", where local_tokens end, got ", chains[i].first_block);
    }
  }
  return absl::OkStatus();
}

std::vector<wire::ChainPart> ToWire(absl::Span<const Chain> chains) {
  std::vector<wire::ChainPart> parts;
  parts.reserve(chains.size());
  for (const Chain& chain : chains) parts.push_back({chain.group, chain.first_block, chain.hashes.bytes()});
  return parts;
}

wire::Match ToWire(uint32_t handle, absl::Span<const Chain> chains, const MatchOptions& options) {
  wire::Match match;
  match.handle = handle;
  match.local_tokens = options.local_tokens;
  match.chains = ToWire(chains);
  match.lease_ms = options.lease_ms;
  match.no_touch = options.no_touch;
  match.prefetch_shards = options.prefetch_shards;
  return match;
}

std::vector<ChainShape> ShapesOf(absl::Span<const Chain> chains) {
  std::vector<ChainShape> shapes;
  shapes.reserve(chains.size());
  for (const Chain& chain : chains) shapes.push_back({chain.group, chain.first_block, chain.hashes.size()});
  return shapes;
}

bool FromWire(const wire::MatchReply& reply, absl::Span<const ChainShape> asked, MatchResult* result) {
  if (reply.chains.size() != asked.size()) return false;
  if (!reply.lease.empty() && reply.lease.size() != wire::kLeaseTokenBytes) return false;
  result->usable_tokens = reply.usable_tokens;
  result->chains.resize(asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    if (!FromWire(reply.chains[i], asked[i], &result->chains[i])) return false;
  }
  result->first_miss = reply.first_miss;
  result->first_miss_chain = reply.first_miss_chain;
  result->first_miss_block = reply.first_miss_block;
  result->lease_limit = reply.lease_limit;
  if (!reply.lease.empty()) result->lease = LeaseAccess::Make(reply.lease, reply.lease_ms);
  return true;
}

}  // namespace quarry
