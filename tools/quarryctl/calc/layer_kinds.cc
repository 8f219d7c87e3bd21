#include "tools/quarryctl/calc/layer_kinds.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "quarry/model_spec.h"

namespace quarry::ctl {
namespace {

using Kinds = absl::StatusOr<std::vector<LayerKind>>;

// Fields of models whose cache has more to it: better no answer than a wrong one.
constexpr const char* kUnknownForms[] = {
    "hybrid_override_pattern",  // Nemotron-H
    "attention_chunk_size",     // Llama 4
    "block_configs",            // Nemotron-NAS: heads differ by layer
    "index_topk",               // DeepSeek-V3.2: an indexer's keys beside the latent
    "cross_attention_layers",   // Llama 3.2 Vision: depends on the images
};

struct NamedKind {
  absl::string_view name;
  LayerKind kind;
};
constexpr NamedKind kKinds[] = {
    {"full_attention", LayerKind::kFull},
    {"attention", LayerKind::kFull},
    {"sliding_attention", LayerKind::kWindow},
    {"linear_attention", LayerKind::kDeltaNet},
    {"mamba", LayerKind::kMamba},
    {"hybrid", LayerKind::kFullBesidesMamba},
};

template <typename IsOther>
std::vector<LayerKind> FullBut(uint64_t layers, LayerKind other, IsOther is_other) {
  std::vector<LayerKind> kinds(layers, LayerKind::kFull);
  for (uint64_t i = 0; i < layers; ++i) {
    if (is_other(i)) kinds[i] = other;
  }
  return kinds;
}

Kinds FromList(const ConfigFields& fields, const std::string& name, uint64_t layers) {
  const auto names = fields.Texts(name);
  if (!names.ok()) return names.status();
  if (names->size() != layers) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", names->size(), " entries for num_hidden_layers ", layers));
  }
  std::vector<LayerKind> kinds;
  for (const std::string& entry : *names) {
    const auto* kind =
        std::find_if(std::begin(kKinds), std::end(kKinds), [&](const NamedKind& known) { return known.name == entry; });
    if (kind == std::end(kKinds)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": \"", entry, "\" is a kind of layer not known here"));
    }
    kinds.push_back(kind->kind);
  }
  return kinds;
}

Kinds ByPeriod(const ConfigFields& fields, uint64_t layers) {
  const auto period = fields.Number("attn_layer_period", 1, layers);
  if (!period.ok()) return period.status();
  const auto offset = fields.Number("attn_layer_offset", 0, *period - 1);
  if (!offset.ok()) return offset.status();
  return FullBut(layers, LayerKind::kMamba, [&](uint64_t i) { return i % *period != *offset; });
}

Kinds ByIndices(const ConfigFields& fields, uint64_t layers) {
  const auto indices = fields.Numbers("attn_layer_indices");
  if (!indices.ok()) return indices.status();
  for (uint64_t index : *indices) {
    if (index < layers) continue;
    return absl::InvalidArgumentError(absl::StrCat("attn_layer_indices: ", index, " is above the most, ", layers - 1));
  }
  return FullBut(layers, LayerKind::kMamba,
                 [&](uint64_t i) { return std::find(indices->begin(), indices->end(), i) == indices->end(); });
}

Kinds ByInterval(const ConfigFields& fields, const std::string& name, LayerKind other, uint64_t layers) {
  const auto interval = fields.Number(name, 1, kMaxLayers);
  if (!interval.ok()) return interval.status();
  return FullBut(layers, other, [&](uint64_t i) { return (i + 1) % *interval != 0; });
}

Kinds ByLetters(const ConfigFields& fields, const std::string& name, uint64_t layers) {
  const auto letters = fields.Text(name);
  if (!letters.ok()) return letters.status();
  if (letters->empty() || letters->find_first_not_of("LG") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": \"", *letters, "\" has other letters than L and G"));
  }
  return FullBut(layers, LayerKind::kWindow, [&](uint64_t i) { return (*letters)[i % letters->size()] == 'L'; });
}

Kinds ByWindow(const ConfigFields& fields, uint64_t layers) {
  const std::string pattern = "sliding_window_pattern";
  if (fields.IsText(pattern)) return ByLetters(fields, pattern, layers);
  if (fields.Has(pattern)) return ByInterval(fields, pattern, LayerKind::kWindow, layers);
  if (fields.Has("use_sliding_window") && fields.Has("max_window_layers")) {
    const auto first = fields.Number("max_window_layers", 0, kMaxLayers);
    if (!first.ok()) return first.status();
    return FullBut(layers, LayerKind::kWindow, [&](uint64_t i) { return i >= *first; });
  }
  return std::vector<LayerKind>(layers, LayerKind::kWindow);
}

}  // namespace

absl::StatusOr<std::vector<LayerKind>> LayerKinds(const ConfigFields& fields, uint64_t layers) {
  for (const char* name : kUnknownForms) {
    if (fields.Has(name)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": models with this field have a cache not known here"));
    }
  }
  const std::string& type = fields.model_type();
  if (type == "mamba" || type == "mamba2" || type == "falcon_mamba") {
    return std::vector<LayerKind>(layers, LayerKind::kMamba);
  }
  if (type == "falcon_h1") return std::vector<LayerKind>(layers, LayerKind::kFullBesidesMamba);
  for (const char* list : {"layer_types", "layers_block_type"}) {
    if (fields.Has(list)) return FromList(fields, list, layers);
  }
  if (type == "jamba" || fields.Has("attn_layer_period")) return ByPeriod(fields, layers);
  if (type == "bamba" || fields.Has("attn_layer_indices")) return ByIndices(fields, layers);
  if (type == "qwen3_next" || fields.Has("full_attention_interval")) {
    return ByInterval(fields, "full_attention_interval", LayerKind::kDeltaNet, layers);
  }
  const auto use_window = fields.BoolOr("use_sliding_window", true);
  if (!use_window.ok()) return use_window.status();
  if (*use_window && fields.Has("sliding_window")) return ByWindow(fields, layers);
  return std::vector<LayerKind>(layers, LayerKind::kFull);
}

}  // namespace quarry::ctl
