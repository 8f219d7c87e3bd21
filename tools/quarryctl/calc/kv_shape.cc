#include "tools/quarryctl/calc/kv_shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quarry::ctl {

uint64_t BlockBytes(const LayerGroup& group, uint64_t tokens_per_block) {
  return group.layers * (group.kind == GroupKind::kState ? group.state_bytes : group.token_bytes * tokens_per_block);
}

uint64_t PromptBytes(const LayerGroup& group, uint64_t tokens) {
  switch (group.kind) {
    case GroupKind::kFull:
      return group.layers * group.token_bytes * tokens;
    case GroupKind::kWindow:
      return group.layers * group.token_bytes * std::min(tokens, group.window_tokens);
    case GroupKind::kState:
      return group.layers * group.state_bytes;
  }
  return 0;
}

absl::Status CheckRanks(const LayerGroup& group, uint64_t ranks) {
  if (group.heads == 0 || group.heads % ranks == 0) return absl::OkStatus();
  if (group.kind == GroupKind::kState) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ranks: ", ranks, " does not divide the ", group.heads, " heads or channels of the state"));
  }
  if (ranks % group.heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--ranks: ", ranks, " neither divides the ", group.heads, " KV heads nor is a multiple of them"));
}

uint64_t RankBytes(const LayerGroup& group, uint64_t bytes, uint64_t ranks) {
  return group.heads == 0 ? bytes : bytes / std::min(ranks, group.heads);
}

PrefixBytes LoadedBytes(const std::vector<LayerGroup>& groups, uint64_t ranks) {
  PrefixBytes loaded;
  for (const LayerGroup& group : groups) {
    const uint64_t token_bytes = ranks * RankBytes(group, group.layers * group.token_bytes, ranks);
    if (group.kind == GroupKind::kFull) loaded.full_token_bytes += token_bytes;
    if (group.kind == GroupKind::kWindow) loaded.windows.push_back({group.window_tokens, token_bytes});
    if (group.kind == GroupKind::kState) {
      loaded.state_bytes += ranks * RankBytes(group, group.layers * group.state_bytes, ranks);
    }
  }
  return loaded;
}

}  // namespace quarry::ctl
