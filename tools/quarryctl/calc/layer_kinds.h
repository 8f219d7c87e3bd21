// Which kind of cache each layer of a model has.
#ifndef QUARRY_TOOLS_QUARRYCTL_CALC_LAYER_KINDS_H_
#define QUARRY_TOOLS_QUARRYCTL_CALC_LAYER_KINDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/quarryctl/calc/config_fields.h"

namespace quarry::ctl {

enum class LayerKind : uint8_t {
  kFull,              // attention to the whole prompt
  kWindow,            // attention to the last sliding_window tokens
  kDeltaNet,          // linear attention (Gated DeltaNet): a state
  kMamba,             // a state
  kFullBesidesMamba,  // both, side by side in one layer (Falcon-H1)
};

// One a layer. As transformers decides it, the first that applies:
// - the model is all Mamba, or Falcon-H1;
// - a list: layer_types or layers_block_type;
// - Jamba: attention where i % attn_layer_period == attn_layer_offset; Bamba: at
//   attn_layer_indices; all others Mamba;
// - Qwen3-Next: attention at every full_attention_interval-th layer, all others linear;
// - sliding_window, unless use_sliding_window is false: at all layers but every
//   sliding_window_pattern-th, or by a pattern such as "LLLG" (local, global); with
//   use_sliding_window and max_window_layers at layers from the latter on; else at all;
// - full.
// InvalidArgument names the field that is wrong, or one that says that this model's cache
// has a form that is not known here.
absl::StatusOr<std::vector<LayerKind>> LayerKinds(const ConfigFields& fields, uint64_t layers);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_CALC_LAYER_KINDS_H_
