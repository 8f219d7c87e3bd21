// The size of a recurrent layer's state.
#ifndef QUARRY_TOOLS_QUARRYCTL_CALC_STATE_LAYERS_H_
#define QUARRY_TOOLS_QUARRYCTL_CALC_STATE_LAYERS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tools/quarryctl/calc/config_fields.h"

namespace quarry::ctl {

// Elements of one layer and sequence. A convolution over `kernel` tokens needs the kernel - 1
// before the next one.
struct StateShape {
  uint64_t conv_elements = 0;  // in the model's dtype
  uint64_t ssm_elements = 0;   // in the state's dtype
  uint64_t heads = 0;          // which ranks divide; channels where there are no heads
};

// Gated DeltaNet (Qwen3-Next):
//   conv  (2 * linear_num_key_heads * linear_key_head_dim + linear_num_value_heads *
//         linear_value_head_dim) * (linear_conv_kernel_dim - 1)
//   state linear_num_value_heads * linear_key_head_dim * linear_value_head_dim
absl::StatusOr<StateShape> DeltaNetState(const ConfigFields& fields);

// Mamba (Gu and Dao 2023), where there are no heads: d = mamba_expand * hidden_size (or
// intermediate_size of model_type mamba)
//   conv d * (mamba_d_conv - 1), state d * mamba_d_state
// Mamba-2 (Dao and Gu 2024), with mamba_n_heads (num_heads): d = heads * head size
//   conv (d + 2 * mamba_n_groups * mamba_d_state) * (mamba_d_conv - 1), state d * mamba_d_state
// Ranks beyond n_groups keep copies of the groups' part of conv; these are not counted.
absl::StatusOr<StateShape> MambaState(const ConfigFields& fields);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_CALC_STATE_LAYERS_H_
