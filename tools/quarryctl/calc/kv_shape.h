// How many bytes a model's KV takes, as the sum over its kinds of layers.
#ifndef QUARRY_TOOLS_QUARRYCTL_CALC_KV_SHAPE_H_
#define QUARRY_TOOLS_QUARRYCTL_CALC_KV_SHAPE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/load_cost.h"
#include "quarry/model_spec.h"

namespace quarry::ctl {

// Layers with the same cache. Sizes are of one layer, for all tensor-parallel ranks together.
struct LayerGroup {
  GroupKind kind = GroupKind::kFull;
  uint64_t layers = 0;
  // K and V of one token; 0 for kState. With attention heads 2 * kv_heads * head_dim *
  // dtype_bytes; with a latent (MLA, DeepSeek-V2 section 2.1) (kv_lora_rank +
  // qk_rope_head_dim) * dtype_bytes, since K and V are both computed from it.
  uint64_t token_bytes = 0;
  uint64_t window_tokens = 0;  // kWindow only
  uint64_t state_bytes = 0;    // kState only: of one sequence, however long
  // Ranks divide the heads; with more ranks than heads each rank keeps one head, so heads
  // are kept several times. 0: nothing to divide (MLA), every rank keeps all.
  uint64_t heads = 0;
};

// A prompt that long is sized; more is not a prompt.
inline constexpr uint64_t kMostPromptTokens = 100'000'000;

// Of all layers of the group: one block (a state is a block of its own); what a prompt of
// `tokens` leaves to be loaded.
uint64_t BlockBytes(const LayerGroup& group, uint64_t tokens_per_block);
uint64_t PromptBytes(const LayerGroup& group, uint64_t tokens);

// OK when `ranks` divides the group's heads or is a multiple of them. For kState only the
// former.
absl::Status CheckRanks(const LayerGroup& group, uint64_t ranks);
// The part of `bytes` of the group that one of `ranks` keeps. CheckRanks has passed.
uint64_t RankBytes(const LayerGroup& group, uint64_t bytes, uint64_t ranks);

// Bytes that all ranks together load of a prefix; more than are stored where ranks keep the
// same heads or the same latent.
PrefixBytes LoadedBytes(const std::vector<LayerGroup>& groups, uint64_t ranks);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_CALC_KV_SHAPE_H_
