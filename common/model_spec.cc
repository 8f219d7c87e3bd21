#include "quarry/model_spec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/utf8.h"

namespace quarry {
namespace {

// A field of the canonical form.
struct Field {
  std::string name;
  std::string value;
};

absl::string_view KindName(GroupKind kind) {
  switch (kind) {
    case GroupKind::kFull:
      return "full";
    case GroupKind::kWindow:
      return "window";
    case GroupKind::kState:
      return "state";
  }
  return "unspecified";
}

absl::string_view Flag(bool value) { return value ? "1" : "0"; }

std::string GroupField(size_t group, absl::string_view field) { return absl::StrCat("groups[", group, "].", field); }

std::vector<Field> Fields(const ModelSpec& spec) {
  std::vector<Field> fields;
  auto add = [&fields](std::string name, const auto& value) {
    fields.push_back({std::move(name), absl::StrCat(value)});
  };
  add("engine", spec.engine);
  add("layout", spec.layout);
  add("model", spec.model);
  add("weights_revision", spec.weights_revision);
  add("adapter_digest", spec.adapter_digest);
  add("kv_dtype", spec.kv_dtype);
  add("quantization", spec.quantization);
  add("hash_scheme", spec.hash_scheme);
  add("hash_seed", spec.hash_seed);
  add("hash_bytes", spec.hash_bytes);
  add("allow_short_hashes", Flag(spec.allow_short_hashes));
  add("layers", spec.layers);
  add("groups", spec.groups.size());
  for (size_t i = 0; i < spec.groups.size(); ++i) {
    const GroupSpec& group = spec.groups[i];
    add(GroupField(i, "kind"), KindName(group.kind));
    add(GroupField(i, "tokens_per_block"), group.tokens_per_block);
    add(GroupField(i, "window_tokens"), group.window_tokens);
    add(GroupField(i, "shards"), group.shards);
    add(GroupField(i, "shard_bytes"), group.shard_bytes);
    add(GroupField(i, "exact_bytes"), Flag(group.exact_bytes));
  }
  return fields;
}

// Collects the first violation.
class Checker {
 public:
  void Require(bool holds, absl::string_view field, absl::string_view bound) {
    if (!holds && status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat("spec.", field, ": must be ", bound));
    }
  }
  void Range(uint64_t value, uint64_t least, uint64_t most, absl::string_view field) {
    Require(value >= least && value <= most, field, absl::StrCat(least, " to ", most, ", is ", value));
  }
  void Text(const std::string& value, size_t least, absl::string_view field) {
    Require(value.size() >= least && value.size() <= kMaxSpecStringBytes, field,
            absl::StrCat(least, " to ", kMaxSpecStringBytes, " bytes long, is ", value.size()));
    Require(IsUtf8(value), field, "UTF-8");
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

void CheckGroup(const GroupSpec& group, size_t index, Checker* check) {
  const bool is_window = group.kind == GroupKind::kWindow;
  const bool is_known = is_window || group.kind == GroupKind::kFull || group.kind == GroupKind::kState;
  check->Require(is_known, GroupField(index, "kind"), "full, window or state");
  check->Range(group.tokens_per_block, 1, kMaxTokensPerBlock, GroupField(index, "tokens_per_block"));
  check->Require(is_window == (group.window_tokens > 0), GroupField(index, "window_tokens"),
                 is_window ? "at least 1 for kind window" : "0 unless kind is window");
  check->Range(group.shards, 1, kMaxShards, GroupField(index, "shards"));
  check->Range(group.shard_bytes, 1, kMaxShardBytes, GroupField(index, "shard_bytes"));
}

}  // namespace

absl::Status Validate(const ModelSpec& spec) {
  Checker check;
  check.Text(spec.engine, 0, "engine");
  check.Text(spec.layout, 0, "layout");
  check.Text(spec.model, 1, "model");
  check.Text(spec.weights_revision, 0, "weights_revision");
  check.Text(spec.adapter_digest, 0, "adapter_digest");
  check.Text(spec.kv_dtype, 1, "kv_dtype");
  check.Text(spec.quantization, 0, "quantization");
  check.Text(spec.hash_scheme, 1, "hash_scheme");
  check.Text(spec.hash_seed, 0, "hash_seed");
  check.Range(spec.hash_bytes, spec.allow_short_hashes ? 1 : kMinHashBytes, kMaxHashBytes, "hash_bytes");
  check.Range(spec.layers, 1, kMaxLayers, "layers");
  check.Range(spec.groups.size(), 1, kMaxGroups, "groups");
  for (size_t i = 0; i < spec.groups.size() && check.status().ok(); ++i) {
    CheckGroup(spec.groups[i], i, &check);
  }
  return check.status();
}

std::string CanonicalForm(const ModelSpec& spec) {
  std::string form = "quarry-model-spec:1:1\n";
  for (const Field& field : Fields(spec)) {
    absl::StrAppend(&form, field.name, ":", field.value.size(), ":", field.value, "\n");
  }
  return form;
}

std::vector<std::string> DifferingFields(const ModelSpec& a, const ModelSpec& b) {
  const std::vector<Field> left = Fields(a);
  const std::vector<Field> right = Fields(b);
  std::vector<std::string> names;
  // Fields of groups that only one has are covered by their count, the field "groups".
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (left[i].value != right[i].value) names.push_back(left[i].name);
  }
  return names;
}

}  // namespace quarry
