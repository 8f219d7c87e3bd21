#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/quarryctl/calc/model_config.h"

namespace quarry::ctl {
namespace {

// Decoders of attention and a gated MLP (three matrices) or a mixture of such, and no more.
constexpr std::array kKnownTypes = {"llama",       "mistral",     "mixtral", "qwen2",       "qwen3",
                                    "qwen3_moe",   "gemma",       "gemma2",  "gemma3_text", "gemma3",
                                    "deepseek_v2", "deepseek_v3", "gpt_oss"};
constexpr uint64_t kGatedMatrices = 3;
constexpr uint64_t kMostExperts = 1 << 16;

// Reads numbers until the first that is missing or wrong.
class Weights {
 public:
  explicit Weights(const ConfigFields& fields) : fields_(fields) {}

  double Size(const std::string& name) { return Store(fields_.Number(name, 1, kMostDimension)); }
  double SizeOr(const std::string& name, double absent) { return fields_.Has(name) ? Size(name) : absent; }
  // The first of `names` that is there.
  double FirstOf(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (fields_.Has(name)) return Store(fields_.Number(name, 0, kMostExperts));
    }
    return 0;
  }

  // Query, key, value and output of one layer.
  double Attention() {
    const double hidden = Size("hidden_size");
    const double heads = Size("num_attention_heads");
    if (fields_.Has("kv_lora_rank")) return LatentAttention(hidden, heads);
    const double kv_heads = SizeOr("num_key_value_heads", heads);
    const double head_dim = SizeOr("head_dim", hidden / heads);
    return 2 * hidden * head_dim * (heads + kv_heads);
  }

  // MLP of all layers.
  double Mlp() {
    const double hidden = Size("hidden_size");
    const double layers = Size("num_hidden_layers");
    const double experts = FirstOf({"num_local_experts", "num_experts", "n_routed_experts"});
    const double dense = kGatedMatrices * hidden * Size("intermediate_size");
    if (experts == 0) return layers * dense;
    const double dense_layers = FirstOf({"first_k_dense_replace"});
    const double active = Size("num_experts_per_tok") + FirstOf({"n_shared_experts"});
    const double expert = kGatedMatrices * hidden * SizeOr("moe_intermediate_size", dense / kGatedMatrices / hidden);
    return dense_layers * dense + (layers - dense_layers) * (active * expert + hidden * experts);
  }

  const absl::Status& status() const { return status_; }

 private:
  double LatentAttention(double hidden, double heads) {
    const double latent = Size("kv_lora_rank");
    const double rope = Size("qk_rope_head_dim");
    const double nope = Size("qk_nope_head_dim");
    const double value = Size("v_head_dim");
    const double query = heads * (nope + rope);
    const double queries = fields_.Has("q_lora_rank") ? Size("q_lora_rank") * (hidden + query) : hidden * query;
    return queries + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden;
  }

  double Store(const absl::StatusOr<uint64_t>& value) {
    if (value.ok()) return static_cast<double>(*value);
    status_.Update(value.status());
    return 1;
  }

  const ConfigFields& fields_;
  absl::Status status_;
};

// Layers that differ in a way not counted here.
bool HasPlainLayers(const ConfigFields& fields) {
  const auto sparse_step = fields.NumberOr("decoder_sparse_step", 1, 0, kMostExperts);
  const auto dense_layers = fields.Has("mlp_only_layers") ? fields.Numbers("mlp_only_layers") : std::vector<uint64_t>();
  return sparse_step.ok() && *sparse_step == 1 && dense_layers.ok() && dense_layers->empty();
}

}  // namespace

absl::StatusOr<uint64_t> CountParameters(const ConfigFields& fields) {
  bool known = false;
  for (const char* type : kKnownTypes) known = known || fields.model_type() == type;
  if (!known || !HasPlainLayers(fields)) {
    return absl::InvalidArgumentError(absl::StrCat("--parameters: needed with --flops, because those of model_type \"",
                                                   fields.model_type(), "\" cannot be counted from this file"));
  }
  Weights weights(fields);
  const double total = weights.Size("num_hidden_layers") * weights.Attention() + weights.Mlp();
  if (!weights.status().ok()) return weights.status();
  return static_cast<uint64_t>(total);
}

}  // namespace quarry::ctl
