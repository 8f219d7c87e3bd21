#include "tools/quarryctl/calc/model_config.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tools/quarryctl/calc/layer_kinds.h"
#include "tools/quarryctl/calc/state_layers.h"

namespace quarry::ctl {
namespace {

struct Dtype {
  absl::string_view name;
  uint64_t bytes;
};
constexpr Dtype kDtypes[] = {
    {"float64", 8},  {"float32", 4},       {"float", 4},       {"float16", 2}, {"half", 2},
    {"bfloat16", 2}, {"float8_e4m3fn", 1}, {"float8_e5m2", 1}, {"int8", 1},
};

// Of the first of `names` that is there; the last names what is missing.
absl::StatusOr<uint64_t> DtypeBytes(const ConfigFields& fields, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (!fields.Has(name)) continue;
    auto dtype = fields.Text(name);
    if (!dtype.ok()) return dtype.status();
    for (const Dtype& known : kDtypes) {
      if (known.name == *dtype) return known.bytes;
    }
    return absl::InvalidArgumentError(absl::StrCat(name, ": \"", *dtype, "\" is no data type known here"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(names.back(), " is missing, and --dtype-bytes does not say how large an element is"));
}

absl::StatusOr<uint64_t> HeadDim(const ConfigFields& fields, uint64_t heads) {
  if (fields.Has("head_dim")) return fields.Number("head_dim", 1, kMostDimension);
  if (!fields.Has("hidden_size")) return fields.Missing("head_dim");
  const auto hidden = fields.Number("hidden_size", 1, kMostDimension);
  if (!hidden.ok()) return hidden.status();
  if (*hidden % heads == 0) return *hidden / heads;
  return absl::InvalidArgumentError(absl::StrCat(fields.Shown("head_dim"), " is missing, and ",
                                                 fields.Shown("hidden_size"), " ", *hidden, " is no multiple of ",
                                                 fields.Shown("num_attention_heads"), " ", heads));
}

// Fills what a token takes, per layer of attention.
absl::Status ReadHeads(const ConfigFields& fields, uint64_t element_bytes, LayerGroup* group) {
  const bool has_heads = fields.Has("num_attention_heads");
  if (!has_heads && !fields.Has("num_key_value_heads")) return fields.Missing("num_key_value_heads");
  uint64_t heads = 0;
  if (has_heads || !fields.Has("head_dim")) {
    const auto read = fields.Number("num_attention_heads", 1, kMostDimension);
    if (!read.ok()) return read.status();
    heads = *read;
  }
  const auto kv_heads = fields.NumberOr("num_key_value_heads", heads, 1, heads == 0 ? kMostDimension : heads);
  if (!kv_heads.ok()) return kv_heads.status();
  const auto head_dim = HeadDim(fields, heads);
  if (!head_dim.ok()) return head_dim.status();
  if (*kv_heads * *head_dim > kMostDimension) {
    return absl::InvalidArgumentError(absl::StrCat(fields.Shown("num_key_value_heads"), " x ", fields.Shown("head_dim"),
                                                   ": ", *kv_heads * *head_dim, " is above the most, ",
                                                   kMostDimension));
  }
  group->heads = *kv_heads;
  group->token_bytes = 2 * *kv_heads * *head_dim * element_bytes;
  return absl::OkStatus();
}

absl::Status ReadLatent(const ConfigFields& fields, uint64_t element_bytes, LayerGroup* group) {
  const auto latent = fields.Number("kv_lora_rank", 1, kMostDimension);
  if (!latent.ok()) return latent.status();
  const auto rope = fields.Number("qk_rope_head_dim", 1, kMostDimension);
  if (!rope.ok()) return rope.status();
  group->heads = 0;
  group->token_bytes = (*latent + *rope) * element_bytes;
  return absl::OkStatus();
}

absl::Status ReadAttention(const ConfigFields& fields, const ElementBytes& bytes, LayerGroup* group) {
  const auto element =
      bytes.kv != 0 ? absl::StatusOr<uint64_t>(bytes.kv) : DtypeBytes(fields, {"dtype", "torch_dtype"});
  if (!element.ok()) return element.status();
  return fields.Has("kv_lora_rank") ? ReadLatent(fields, *element, group) : ReadHeads(fields, *element, group);
}

absl::StatusOr<LayerGroup> ReadState(const ConfigFields& fields, LayerKind kind, const ElementBytes& bytes) {
  const auto shape = kind == LayerKind::kDeltaNet ? DeltaNetState(fields) : MambaState(fields);
  if (!shape.ok()) return shape.status();
  const auto conv = DtypeBytes(fields, {"dtype", "torch_dtype"});
  if (!conv.ok()) return conv.status();
  const auto ssm = bytes.state != 0 ? absl::StatusOr<uint64_t>(bytes.state)
                                    : DtypeBytes(fields, {"mamba_ssm_dtype", "dtype", "torch_dtype"});
  if (!ssm.ok()) return ssm.status();
  return LayerGroup{.kind = GroupKind::kState,
                    .state_bytes = shape->conv_elements * *conv + shape->ssm_elements * *ssm,
                    .heads = shape->heads};
}

uint64_t Count(const std::vector<LayerKind>& kinds, LayerKind kind) {
  return static_cast<uint64_t>(std::count(kinds.begin(), kinds.end(), kind));
}

absl::StatusOr<std::vector<LayerKind>> CachedLayers(const ConfigFields& fields) {
  const auto layers = fields.Number("num_hidden_layers", 1, kMaxLayers);
  if (!layers.ok()) return layers.status();
  auto kinds = LayerKinds(fields, *layers);
  if (!kinds.ok()) return kinds;
  const auto shared = fields.NumberOr("num_kv_shared_layers", 0, 0, *layers - 1);
  if (!shared.ok()) return shared.status();
  kinds->resize(*layers - *shared);
  return kinds;
}

}  // namespace

absl::StatusOr<std::vector<LayerGroup>> ReadLayerGroups(const ConfigFields& fields, const ElementBytes& bytes) {
  const auto kinds = CachedLayers(fields);
  if (!kinds.ok()) return kinds.status();
  std::vector<LayerGroup> groups;
  const uint64_t besides = Count(*kinds, LayerKind::kFullBesidesMamba);
  if (const uint64_t full = Count(*kinds, LayerKind::kFull) + besides; full > 0) {
    LayerGroup group{.kind = GroupKind::kFull, .layers = full};
    if (absl::Status status = ReadAttention(fields, bytes, &group); !status.ok()) return status;
    groups.push_back(group);
  }
  if (const uint64_t windows = Count(*kinds, LayerKind::kWindow); windows > 0) {
    LayerGroup group{.kind = GroupKind::kWindow, .layers = windows};
    if (absl::Status status = ReadAttention(fields, bytes, &group); !status.ok()) return status;
    const auto window = fields.Number("sliding_window", 1, kMostWindowTokens);
    if (!window.ok()) return window.status();
    group.window_tokens = *window;
    groups.push_back(group);
  }
  for (LayerKind kind : {LayerKind::kDeltaNet, LayerKind::kMamba}) {
    const uint64_t states = Count(*kinds, kind) + (kind == LayerKind::kMamba ? besides : 0);
    if (states == 0) continue;
    auto group = ReadState(fields, kind, bytes);
    if (!group.ok()) return group.status();
    group->layers = states;
    groups.push_back(*group);
  }
  return groups;
}

}  // namespace quarry::ctl
