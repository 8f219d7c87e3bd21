#include "quarry/model_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace quarry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelSpec ValidSpec() {
  ModelSpec spec;
  spec.engine = "vllm";
  spec.model = "m";
  spec.kv_dtype = "bfloat16";
  spec.hash_scheme = "sha256";
  spec.layers = 32;
  spec.groups = {{GroupKind::kFull, 16, 0, 1, 1024, true}, {GroupKind::kWindow, 32, 4096, 2, 512, false}};
  return spec;
}

struct BadSpec {
  std::function<void(ModelSpec*)> spoil;
  const char* field;
  const char* bound;
};

TEST(ValidateSpec, AcceptsEveryLimit) {
  EXPECT_TRUE(Validate(ValidSpec()).ok());
  ModelSpec largest = ValidSpec();
  largest.model = largest.engine = std::string(kMaxSpecStringBytes, 'x');
  largest.hash_bytes = kMaxHashBytes;
  largest.layers = kMaxLayers;
  largest.groups.assign(kMaxGroups, {GroupKind::kState, kMaxTokensPerBlock, 0, kMaxShards, kMaxShardBytes, false});
  EXPECT_TRUE(Validate(largest).ok()) << Validate(largest);
  ModelSpec smallest = ValidSpec();
  smallest.engine.clear();
  smallest.hash_bytes = 1;
  smallest.allow_short_hashes = true;
  smallest.layers = 1;
  smallest.groups = {{GroupKind::kWindow, 1, 1, 1, 1, true}};
  EXPECT_TRUE(Validate(smallest).ok()) << Validate(smallest);
}

TEST(ValidateSpec, NamesTheFieldAndTheBound) {
  const std::string too_long(kMaxSpecStringBytes + 1, 'x');
  const BadSpec cases[] = {
      {[&](ModelSpec* s) { s->engine = too_long; }, "engine", "0 to 256 bytes long, is 257"},
      {[&](ModelSpec* s) { s->layout = too_long; }, "layout", "256"},
      {[](ModelSpec* s) { s->layout = "\xFF"; }, "layout", "UTF-8"},
      {[](ModelSpec* s) { s->model.clear(); }, "model", "1 to 256 bytes long, is 0"},
      {[&](ModelSpec* s) { s->model = too_long; }, "model", "256"},
      {[&](ModelSpec* s) { s->weights_revision = too_long; }, "weights_revision", "256"},
      {[&](ModelSpec* s) { s->adapter_digest = too_long; }, "adapter_digest", "256"},
      {[](ModelSpec* s) { s->kv_dtype.clear(); }, "kv_dtype", "1 to"},
      {[&](ModelSpec* s) { s->quantization = too_long; }, "quantization", "256"},
      {[](ModelSpec* s) { s->hash_scheme.clear(); }, "hash_scheme", "1 to"},
      {[&](ModelSpec* s) { s->hash_seed = too_long; }, "hash_seed", "256"},
      {[](ModelSpec* s) { s->hash_bytes = 0; }, "hash_bytes", "16 to 64, is 0"},
      {[](ModelSpec* s) { s->hash_bytes = 15; }, "hash_bytes", "16 to 64, is 15"},
      {[](ModelSpec* s) { s->hash_bytes = 65; }, "hash_bytes", "16 to 64, is 65"},
      {[](ModelSpec* s) { s->allow_short_hashes = true, s->hash_bytes = 0; }, "hash_bytes", "1 to 64, is 0"},
      {[](ModelSpec* s) { s->layers = 0; }, "layers", "1 to 4096, is 0"},
      {[](ModelSpec* s) { s->layers = 4097; }, "layers", "1 to 4096"},
      {[](ModelSpec* s) { s->groups.clear(); }, "groups", "1 to 16, is 0"},
      {[](ModelSpec* s) { s->groups.resize(17, s->groups[0]); }, "groups", "1 to 16, is 17"},
      {[](ModelSpec* s) { s->groups[1].kind = GroupKind{0}; }, "groups[1].kind", "full, window or state"},
      {[](ModelSpec* s) { s->groups[1].kind = GroupKind{4}; }, "groups[1].kind", "full, window or state"},
      {[](ModelSpec* s) { s->groups[0].tokens_per_block = 0; }, "groups[0].tokens_per_block", "1 to 1048576"},
      {[](ModelSpec* s) { s->groups[0].tokens_per_block = 1048577; }, "groups[0].tokens_per_block", "1048576"},
      {[](ModelSpec* s) { s->groups[1].window_tokens = 0; }, "groups[1].window_tokens", "at least 1"},
      {[](ModelSpec* s) { s->groups[0].window_tokens = 1; }, "groups[0].window_tokens", "0 unless"},
      {[](ModelSpec* s) { s->groups[0].shards = 0; }, "groups[0].shards", "1 to 256"},
      {[](ModelSpec* s) { s->groups[0].shards = 257; }, "groups[0].shards", "1 to 256"},
      {[](ModelSpec* s) { s->groups[1].shard_bytes = 0; }, "groups[1].shard_bytes", "1 to 67108864"},
      {[](ModelSpec* s) { s->groups[1].shard_bytes = kMaxShardBytes + 1; }, "groups[1].shard_bytes", "67108864"},
  };
  for (const BadSpec& bad : cases) {
    ModelSpec spec = ValidSpec();
    bad.spoil(&spec);
    const absl::Status status = Validate(spec);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.field;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(bad.field), HasSubstr(bad.bound)));
  }
}

TEST(CanonicalForm, IsAsDocumented) {
  ModelSpec spec = ValidSpec();
  spec.layout = "a:1\nb";
  EXPECT_EQ(CanonicalForm(spec),
            "quarry-model-spec:1:1\nengine:4:vllm\nlayout:5:a:1\nb\nmodel:1:m\nweights_revision:0:\n"
            "adapter_digest:0:\nkv_dtype:8:bfloat16\nquantization:0:\nhash_scheme:6:sha256\nhash_seed:0:\n"
            "hash_bytes:2:32\nallow_short_hashes:1:0\nlayers:2:32\ngroups:1:2\n"
            "groups[0].kind:4:full\ngroups[0].tokens_per_block:2:16\ngroups[0].window_tokens:1:0\n"
            "groups[0].shards:1:1\ngroups[0].shard_bytes:4:1024\ngroups[0].exact_bytes:1:1\n"
            "groups[1].kind:6:window\ngroups[1].tokens_per_block:2:32\ngroups[1].window_tokens:4:4096\n"
            "groups[1].shards:1:2\ngroups[1].shard_bytes:3:512\ngroups[1].exact_bytes:1:0\n");
}

TEST(DifferingFields, NamesEachFieldInItsOrder) {
  const ModelSpec spec = ValidSpec();
  EXPECT_THAT(DifferingFields(spec, spec), IsEmpty());
  ModelSpec all = spec;
  for (std::string* text : {&all.engine, &all.layout, &all.model, &all.weights_revision, &all.adapter_digest,
                            &all.kv_dtype, &all.quantization, &all.hash_scheme, &all.hash_seed}) {
    *text += "+";
  }
  all.hash_bytes = 16;
  all.allow_short_hashes = true;
  all.layers = 1;
  all.groups[1] = {GroupKind::kState, 1, 0, 1, 1, true};
  EXPECT_THAT(DifferingFields(spec, all),
              ElementsAre("engine", "layout", "model", "weights_revision", "adapter_digest", "kv_dtype", "quantization",
                          "hash_scheme", "hash_seed", "hash_bytes", "allow_short_hashes", "layers", "groups[1].kind",
                          "groups[1].tokens_per_block", "groups[1].window_tokens", "groups[1].shards",
                          "groups[1].shard_bytes", "groups[1].exact_bytes"));
}

TEST(DifferingFields, OfAnotherNumberOfGroupsNamesTheCount) {
  const ModelSpec spec = ValidSpec();
  ModelSpec fewer = spec;
  fewer.groups.pop_back();
  EXPECT_THAT(DifferingFields(spec, fewer), ElementsAre("groups"));
  fewer.groups[0].shards = 4;
  EXPECT_THAT(DifferingFields(fewer, spec), ElementsAre("groups", "groups[0].shards"));
}

}  // namespace
}  // namespace quarry
