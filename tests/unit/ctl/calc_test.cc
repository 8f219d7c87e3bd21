// Sizes and times of published models, against the figures that the design promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tools/quarryctl/calc/calculation.h"
#include "tools/quarryctl/calc/model_config.h"

namespace quarry::ctl {
namespace {

using testing::HasSubstr;

constexpr uint64_t kKiB = 1 << 10;
constexpr uint64_t kGiB = 1 << 30;

ConfigFields Model(const std::string& name) {
  std::ifstream in(std::string(QUARRY_TEST_DATA "/model_configs/") + name + ".json");
  EXPECT_TRUE(in.good()) << name;
  return ConfigFields::Parse({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()}).value();
}

std::vector<LayerGroup> Groups(const std::string& name) { return ReadLayerGroups(Model(name), {}).value(); }

CalcInput Input(const std::string& name, uint64_t tokens, uint64_t tokens_per_block, uint64_t ranks = 1) {
  CalcInput input;
  input.groups = Groups(name);
  input.prompt_tokens = tokens;
  input.tokens_per_block = tokens_per_block;
  input.ranks = ranks;
  return input;
}

CalcResult Result(const std::string& name, uint64_t tokens, uint64_t tokens_per_block, uint64_t ranks = 1) {
  return Calculate(Input(name, tokens, tokens_per_block, ranks)).value();
}

TEST(CalcTest, Llama8BTakes128KiBATokenAnd1GiBFor8192) {
  const CalcResult result = Result("llama-3-8b", 8192, 16);
  EXPECT_EQ(result.token_bytes, 128 * kKiB);
  EXPECT_EQ(result.block_bytes, 32 * 64 * kKiB);
  EXPECT_EQ(result.prompt_bytes, kGiB);
  EXPECT_EQ(result.loaded_bytes, kGiB);
  EXPECT_FALSE(result.load.has_value());
}

TEST(CalcTest, Llama70BOfEightRanksTakes80Times8KiBABlockAndRank) {
  const CalcResult result = Result("llama-3-70b", 10'000, 16, 8);
  EXPECT_EQ(result.rank_block_bytes, 80 * 8 * kKiB);
  EXPECT_EQ(result.block_bytes, 8 * result.rank_block_bytes);
  EXPECT_EQ(result.loaded_bytes, result.prompt_bytes);
}

TEST(CalcTest, Llama70BPromptOf10000TokensLoadsFasterThanItIsComputed) {
  CalcInput input = Input("llama-3-70b", 10'000, 16);
  input.path = LoadPath{.bytes_per_second = 24e9};
  input.parameters = 70e9;
  input.flop_per_second = 4e15;
  input.prefill_tokens_per_second = PrefillTokensPerSecond(70e9, 4e15);
  const CalcResult result = Calculate(input).value();
  EXPECT_NEAR(static_cast<double>(result.prompt_bytes), 3.3e9, 0.03e9);
  EXPECT_NEAR(*result.load_seconds, 0.14, 0.005);
  EXPECT_NEAR(*result.recompute_flop, 1.4e15, 1);
  EXPECT_NEAR(*result.recompute_seconds, 0.35, 1e-9);
  EXPECT_TRUE(*result.load);
  EXPECT_EQ(*result.break_even_tokens, 1u);
}

TEST(CalcTest, ASlowPathNeverWins) {
  CalcInput input = Input("llama-3-8b", 8192, 16);
  input.path = LoadPath{.bytes_per_second = BytesPerSecond(20'000, 16 << 10)};
  input.prefill_tokens_per_second = 10'000;
  const CalcResult result = Calculate(input).value();
  EXPECT_NEAR(*result.load_seconds, 3.28, 0.005);
  EXPECT_NEAR(*result.recompute_seconds, 0.8192, 1e-9);
  EXPECT_FALSE(*result.load);
  EXPECT_EQ(*result.break_even_tokens, std::nullopt);
}

TEST(CalcTest, DeepSeekKeepsALatentThatEveryRankLoads) {
  const CalcResult result = Result("deepseek-v3", 64, 64, 8);
  EXPECT_EQ(result.block_bytes, 61 * 72 * kKiB);
  EXPECT_EQ(result.rank_block_bytes, result.block_bytes);
  EXPECT_EQ(result.loaded_bytes, 8 * result.prompt_bytes);
}

TEST(CalcTest, Qwen3Takes36Times64KiBABlock) { EXPECT_EQ(Result("qwen3-8b", 16, 16).block_bytes, 36 * 64 * kKiB); }

TEST(CalcTest, MoreRanksThanHeadsKeepCopies) {
  const CalcResult result = Result("llama-3-8b", 16, 16, 16);
  EXPECT_EQ(result.rank_block_bytes, 32 * 8 * kKiB);
  EXPECT_EQ(result.loaded_bytes, 2 * result.prompt_bytes);
}

TEST(CalcTest, RanksThatDoNotFitAreNamed) {
  const auto result = Calculate(Input("llama-3-8b", 16, 16, 6));
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("--ranks: 6 neither divides the 8 KV heads"));
}

TEST(CalcTest, EveryLayerOfMistralHasAWindow) {
  EXPECT_EQ(Result("mistral-7b-v0.1", 4000, 16).prompt_bytes, 4000 * 128 * kKiB);
  EXPECT_EQ(Result("mistral-7b-v0.1", 100'000, 16).prompt_bytes, 4096 * 128 * kKiB);
  EXPECT_EQ(Result("mistral-7b-v0.1", 100'000, 16).token_bytes_past_windows, 0u);
}

TEST(CalcTest, EverySixthLayerOfGemma3SeesAll) {
  const std::vector<LayerGroup> groups = Groups("gemma-3-27b");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, 10u);
  EXPECT_EQ(groups[1].layers, 52u);
  EXPECT_EQ(groups[1].window_tokens, 1024u);
  EXPECT_EQ(groups[0].token_bytes, 2u * 16 * 128 * 2);
  EXPECT_EQ(Result("gemma-3-27b", 8192, 16).prompt_bytes, 8 * kKiB * (10 * 8192 + 52 * 1024));
}

TEST(CalcTest, Gemma3LeavesOutWhatItsClassKnows) {
  const std::vector<LayerGroup> groups = Groups("gemma-3-4b");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, 5u);
  EXPECT_EQ(groups[0].token_bytes, 2u * 4 * 256 * 2);
}

TEST(CalcTest, EveryOtherLayerOfGptOssHasAWindow) {
  const std::vector<LayerGroup> groups = Groups("gpt-oss-20b");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, 12u);
  EXPECT_EQ(groups[1].layers, 12u);
  EXPECT_EQ(groups[1].window_tokens, 128u);
  EXPECT_EQ(groups[0].token_bytes, 2 * kKiB);
}

TEST(CalcTest, Qwen3NextHasStatesThatDoNotGrow) {
  const std::vector<LayerGroup> groups = Groups("qwen3-next-80b");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, 12u);
  EXPECT_EQ(groups[0].token_bytes, 2u * 2 * 256 * 2);
  EXPECT_EQ(groups[1].kind, GroupKind::kState);
  EXPECT_EQ(groups[1].layers, 36u);
  EXPECT_EQ(groups[1].state_bytes, (8192u * 3 + 32 * 128 * 128) * 2);
  const CalcResult small = Result("qwen3-next-80b", 1, 16);
  const CalcResult large = Result("qwen3-next-80b", 1001, 16);
  EXPECT_EQ(small.state_bytes, 36 * groups[1].state_bytes);
  EXPECT_EQ(large.prompt_bytes - small.prompt_bytes, 1000 * small.token_bytes);
}

TEST(CalcTest, AStateMayBeWiderThanTheRest) {
  const auto groups = ReadLayerGroups(Model("qwen3-next-80b"), {.kv = 1, .state = 4}).value();
  EXPECT_EQ(groups[0].token_bytes, 2u * 2 * 256);
  EXPECT_EQ(groups[1].state_bytes, 8192u * 3 * 2 + 32 * 128 * 128 * 4);
}

TEST(CalcTest, EveryEighthLayerOfJambaIsAttention) {
  const std::vector<LayerGroup> groups = Groups("jamba-v0.1");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, 4u);
  EXPECT_EQ(groups[1].layers, 28u);
  EXPECT_EQ(groups[1].state_bytes, 8192u * (3 + 16) * 2);
}

TEST(CalcTest, FalconH1HasBothInEveryLayer) {
  const std::vector<LayerGroup> groups = Groups("falcon-h1-7b");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].layers, 44u);
  EXPECT_EQ(groups[1].layers, 44u);
  EXPECT_EQ(groups[1].state_bytes, ((3072u + 2 * 256) * 3 + 24 * 128 * 256) * 2);
}

TEST(CalcTest, ReportsTheSameAsTextAndJson) {
  CalcInput input = Input("llama-3-8b", 8192, 16);
  input.path = LoadPath{.bytes_per_second = 24e9};
  const Report report = CalcReport(input, Calculate(input).value());
  EXPECT_THAT(report.ToText(), HasSubstr("bytes per prompt       1GiB\n"));
  const auto json = nlohmann::json::parse(report.ToJson());
  EXPECT_EQ(json["bytes_per_prompt"], kGiB);
  EXPECT_EQ(json["groups"][0]["kind"], "full");
  EXPECT_TRUE(json["verdict"].is_null());
}

// Published: 8.03B with embedding and head of 128256 x 4096 each.
TEST(ParametersTest, Llama8BHas8BillionWithItsVocabulary) {
  const double total = static_cast<double>(CountParameters(Model("llama-3-8b")).value()) + 2.0 * 128256 * 4096;
  EXPECT_NEAR(total, 8.03e9, 0.005e9);
}

TEST(ParametersTest, Llama70BHas70BillionWithItsVocabulary) {
  const double total = static_cast<double>(CountParameters(Model("llama-3-70b")).value()) + 2.0 * 128256 * 8192;
  EXPECT_NEAR(total, 70.6e9, 0.1e9);
}

// Published: 37B active, and 3.6B active with the head.
TEST(ParametersTest, OfAMixtureOfExpertsTheActiveOnesCount) {
  const double deepseek = static_cast<double>(CountParameters(Model("deepseek-v3")).value()) + 129280.0 * 7168;
  EXPECT_NEAR(deepseek, 37e9, 0.5e9);
  const double gpt_oss = static_cast<double>(CountParameters(Model("gpt-oss-20b")).value()) + 201088.0 * 2880;
  EXPECT_NEAR(gpt_oss, 3.61e9, 0.01e9);
}

TEST(ParametersTest, AModelThatIsNotKnownIsRefused) {
  const auto count = CountParameters(Model("falcon-h1-7b"));
  ASSERT_FALSE(count.ok());
  EXPECT_THAT(std::string(count.status().message()), HasSubstr("--parameters"));
}

}  // namespace
}  // namespace quarry::ctl
