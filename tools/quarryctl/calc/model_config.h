// The KV shape and the parameters of a model, from its Hugging Face config.json.
#ifndef QUARRY_TOOLS_QUARRYCTL_CALC_MODEL_CONFIG_H_
#define QUARRY_TOOLS_QUARRYCTL_CALC_MODEL_CONFIG_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/quarryctl/calc/config_fields.h"
#include "tools/quarryctl/calc/kv_shape.h"

namespace quarry::ctl {

inline constexpr uint64_t kMostDtypeBytes = 8;
inline constexpr uint64_t kMostDimension = 1 << 20;  // of heads, head sizes, hidden sizes, ranks of matrices
inline constexpr uint64_t kMostWindowTokens = 1 << 30;

struct ElementBytes {
  uint64_t kv = 0;     // of K and V; 0: as dtype (torch_dtype) says
  uint64_t state = 0;  // of a recurrent state; 0: as mamba_ssm_dtype, else dtype, says
};

// The layers of the model by kind, in the order full, window, state. Where the file is
// silent, as transformers: num_key_value_heads is num_attention_heads, head_dim is
// hidden_size / num_attention_heads. The last num_kv_shared_layers layers have no cache of
// their own. InvalidArgument names the field that is missing or wrong.
absl::StatusOr<std::vector<LayerGroup>> ReadLayerGroups(const ConfigFields& fields, const ElementBytes& bytes);

// The weights that a prompt token passes through: attention and MLP; of a mixture of experts
// the router, the experts of one token and the shared ones. Left out are biases and norms
// (below 0.1 %), the embedding, which is a look-up, and the head, which a prefill computes
// for its last token alone. InvalidArgument: not a model whose weights are known here.
absl::StatusOr<uint64_t> CountParameters(const ConfigFields& fields);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_CALC_MODEL_CONFIG_H_
