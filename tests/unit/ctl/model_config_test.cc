// What is wrong with a config.json is named.
#include "tools/quarryctl/calc/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace quarry::ctl {
namespace {

using testing::HasSubstr;

// `changes` over a small model; a null takes a field away.
absl::StatusOr<std::vector<LayerGroup>> Read(const nlohmann::json& changes) {
  nlohmann::json config = {
      {"num_hidden_layers", 4}, {"num_attention_heads", 8}, {"hidden_size", 512}, {"dtype", "float16"}};
  config.update(changes);
  const auto fields = ConfigFields::Parse(config.dump());
  if (!fields.ok()) return fields.status();
  return ReadLayerGroups(*fields, {});
}

std::string Error(const nlohmann::json& changes) {
  const auto groups = Read(changes);
  return groups.ok() ? "no error" : std::string(groups.status().message());
}

TEST(ModelConfigTest, FallsBackAsTransformersDoes) {
  const auto groups = Read(nlohmann::json::object()).value();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].heads, 8u);
  EXPECT_EQ(groups[0].token_bytes, 2u * 8 * 64 * 2);
}

TEST(ModelConfigTest, NamesTheFieldThatIsMissing) {
  EXPECT_EQ(Error({{"num_hidden_layers", nullptr}}), "num_hidden_layers is missing");
  EXPECT_EQ(Error({{"num_attention_heads", nullptr}}), "num_key_value_heads is missing");
  EXPECT_EQ(Error({{"num_attention_heads", nullptr}, {"num_key_value_heads", 2}}), "num_attention_heads is missing");
  EXPECT_EQ(Error({{"hidden_size", nullptr}}), "head_dim is missing");
  EXPECT_EQ(Error({{"kv_lora_rank", 512}}), "qk_rope_head_dim is missing");
  EXPECT_EQ(Error({{"layer_types", {"full_attention", "sliding_attention", "full_attention", "full_attention"}}}),
            "sliding_window is missing");
  EXPECT_THAT(Error({{"dtype", nullptr}}), HasSubstr("torch_dtype is missing, and --dtype-bytes"));
}

TEST(ModelConfigTest, NamesFieldAndBoundOfABadNumber) {
  EXPECT_EQ(Error({{"num_hidden_layers", 0}}), "num_hidden_layers: 0 is below the least, 1");
  EXPECT_EQ(Error({{"num_hidden_layers", -3}}), "num_hidden_layers: -3 is below the least, 1");
  EXPECT_EQ(Error({{"num_hidden_layers", 5000}}), "num_hidden_layers: 5000 is above the most, 4096");
  EXPECT_EQ(Error({{"num_hidden_layers", 4.5}}), "num_hidden_layers: 4.5 is not a whole number from 1 to 4096");
  EXPECT_EQ(Error({{"num_key_value_heads", {1, 2}}}), "num_key_value_heads: [1,2] is not a whole number from 1 to 8");
  EXPECT_EQ(Error({{"num_key_value_heads", 16}}), "num_key_value_heads: 16 is above the most, 8");
  EXPECT_EQ(Error({{"sliding_window", 0}}), "sliding_window: 0 is below the least, 1");
  EXPECT_EQ(Error({{"sliding_window", 8}, {"use_sliding_window", "yes"}}),
            "use_sliding_window: \"yes\" is neither true nor false");
  EXPECT_THAT(Error({{"num_attention_heads", 1 << 15}, {"head_dim", 64}}), HasSubstr("is above the most, 1048576"));
}

TEST(ModelConfigTest, NamesWhatContradictsItself) {
  EXPECT_EQ(Error({{"num_attention_heads", 7}}),
            "head_dim is missing, and hidden_size 512 is no multiple of num_attention_heads 7");
  EXPECT_EQ(Error({{"layer_types", {"full_attention"}}}), "layer_types: 1 entries for num_hidden_layers 4");
  EXPECT_EQ(Error({{"attn_layer_indices", {9}}}), "attn_layer_indices: 9 is above the most, 3");
  EXPECT_EQ(Error({{"attn_layer_period", 2}, {"attn_layer_offset", 2}}), "attn_layer_offset: 2 is above the most, 1");
}

TEST(ModelConfigTest, NamesWhatItDoesNotKnow) {
  EXPECT_EQ(Error({{"dtype", "float3"}}), "dtype: \"float3\" is no data type known here");
  EXPECT_EQ(Error({{"layer_types", {"a", "b", "c", "d"}}}), "layer_types: \"a\" is a kind of layer not known here");
  EXPECT_THAT(Error({{"attention_chunk_size", 8192}}), HasSubstr("attention_chunk_size: models with this field"));
  EXPECT_THAT(Error({{"hybrid_override_pattern", "M*M-"}}), HasSubstr("hybrid_override_pattern"));
  EXPECT_EQ(Error({{"sliding_window", 8}, {"sliding_window_pattern", "LLX"}}),
            "sliding_window_pattern: \"LLX\" has other letters than L and G");
}

TEST(ModelConfigTest, AHybridWithoutTheSizesOfItsStateIsAnError) {
  const nlohmann::json jamba = {{"attn_layer_period", 2}, {"attn_layer_offset", 1}, {"mamba_d_conv", 4}};
  EXPECT_EQ(Error(jamba), "mamba_d_state is missing");
  const nlohmann::json linear = {{"full_attention_interval", 4}, {"linear_num_key_heads", 4}};
  EXPECT_EQ(Error(linear), "linear_key_head_dim is missing");
}

TEST(ModelConfigTest, BrokenJsonIsAnError) {
  for (const char* text : {"", "{", "{\"num_hidden_layers\": }"}) {
    const auto fields = ConfigFields::Parse(text);
    ASSERT_FALSE(fields.ok()) << text;
    EXPECT_THAT(std::string(fields.status().message()), HasSubstr("not JSON")) << text;
  }
  EXPECT_EQ(ConfigFields::Parse("[1]").status().message(), "not a JSON object");
}

TEST(LayerKindsTest, AWindowAppliesWhereTheConfigSays) {
  const auto windows = [](const nlohmann::json& changes) {
    uint64_t layers = 0;
    const std::vector<LayerGroup> groups = Read(changes).value();
    for (const LayerGroup& group : groups) {
      if (group.kind == GroupKind::kWindow) layers += group.layers;
    }
    return layers;
  };
  EXPECT_EQ(windows({{"sliding_window", 8}}), 4u);
  EXPECT_EQ(windows({{"sliding_window", 8}, {"use_sliding_window", false}}), 0u);
  EXPECT_EQ(windows({{"sliding_window", 8}, {"use_sliding_window", true}, {"max_window_layers", 3}}), 1u);
  EXPECT_EQ(windows({{"sliding_window", 8}, {"sliding_window_pattern", 2}}), 2u);
  EXPECT_EQ(windows({{"sliding_window", 8}, {"sliding_window_pattern", "LLLG"}}), 3u);
  EXPECT_EQ(windows({{"sliding_window", 8}, {"num_kv_shared_layers", 1}}), 3u);
  EXPECT_EQ(windows({{"sliding_window", nullptr}}), 0u);
}

TEST(LayerKindsTest, PureMambaHasOnlyStates) {
  const auto mamba = Read({{"model_type", "mamba"}, {"state_size", 16}, {"conv_kernel", 4}, {"expand", 2}}).value();
  ASSERT_EQ(mamba.size(), 1u);
  EXPECT_EQ(mamba[0].state_bytes, 1024u * (3 + 16) * 2);
  const auto mamba2 = Read({{"model_type", "mamba2"},
                            {"state_size", 128},
                            {"conv_kernel", 4},
                            {"expand", 2},
                            {"num_heads", 16},
                            {"n_groups", 1}})
                          .value();
  EXPECT_EQ(mamba2[0].heads, 16u);
  EXPECT_EQ(mamba2[0].state_bytes, ((1024u + 256) * 3 + 1024 * 128) * 2);
}

}  // namespace
}  // namespace quarry::ctl
