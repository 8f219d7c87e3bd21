#include "tools/quarryctl/calc/state_layers.h"

#include <string>

#include "tools/quarryctl/calc/model_config.h"

namespace quarry::ctl {
namespace {

// Reads numbers until the first that is missing or wrong.
class Reader {
 public:
  explicit Reader(const ConfigFields& fields) : fields_(fields) {}

  uint64_t Size(const std::string& name) {
    const auto value = fields_.Number(name, 1, kMostDimension);
    if (!value.ok()) status_.Update(value.status());
    return value.ok() ? *value : 1;
  }
  // Hybrids prefix the names that a pure Mamba model has.
  uint64_t Size(const std::string& hybrid, const std::string& pure) {
    return Size(!fields_.Has(hybrid) && fields_.Has(pure) ? pure : hybrid);
  }
  const absl::Status& status() const { return status_; }

 private:
  const ConfigFields& fields_;
  absl::Status status_;
};

// The width of the recurrent part.
uint64_t InnerSize(const ConfigFields& fields, Reader* read) {
  if (fields.Has("mamba_d_ssm")) return read->Size("mamba_d_ssm");
  const bool pure = fields.model_type() == "mamba" || fields.model_type() == "falcon_mamba";
  if (pure && fields.Has("intermediate_size")) return read->Size("intermediate_size");
  return read->Size("mamba_expand", "expand") * read->Size("hidden_size");
}

}  // namespace

absl::StatusOr<StateShape> DeltaNetState(const ConfigFields& fields) {
  Reader read(fields);
  const uint64_t key_heads = read.Size("linear_num_key_heads");
  const uint64_t key_size = read.Size("linear_key_head_dim");
  const uint64_t value_heads = read.Size("linear_num_value_heads");
  const uint64_t value_size = read.Size("linear_value_head_dim");
  const uint64_t kernel = read.Size("linear_conv_kernel_dim");
  if (!read.status().ok()) return read.status();
  return StateShape{.conv_elements = (2 * key_heads * key_size + value_heads * value_size) * (kernel - 1),
                    .ssm_elements = value_heads * key_size * value_size,
                    .heads = value_heads};
}

absl::StatusOr<StateShape> MambaState(const ConfigFields& fields) {
  Reader read(fields);
  const uint64_t state = read.Size("mamba_d_state", "state_size");
  const uint64_t kernel = read.Size("mamba_d_conv", "conv_kernel");
  const uint64_t inner = InnerSize(fields, &read);
  if (!read.status().ok()) return read.status();
  const bool has_heads = fields.Has("mamba_n_heads") || fields.model_type() == "mamba2";
  if (!has_heads) {
    return StateShape{.conv_elements = inner * (kernel - 1), .ssm_elements = inner * state, .heads = inner};
  }
  const uint64_t heads = read.Size("mamba_n_heads", "num_heads");
  const uint64_t groups = read.Size("mamba_n_groups", "n_groups");
  if (!read.status().ok()) return read.status();
  return StateShape{
      .conv_elements = (inner + 2 * groups * state) * (kernel - 1), .ssm_elements = inner * state, .heads = heads};
}

}  // namespace quarry::ctl
