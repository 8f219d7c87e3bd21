#include "tools/quarryctl/calc/calculation.h"

#include <utility>

namespace quarry::ctl {
namespace {

const char* Name(GroupKind kind) {
  switch (kind) {
    case GroupKind::kFull:
      return "full";
    case GroupKind::kWindow:
      return "window";
    case GroupKind::kState:
      return "state";
  }
  return "";
}

void AddSizes(const CalcInput& input, CalcResult* result) {
  for (const LayerGroup& group : input.groups) {
    const uint64_t prompt = PromptBytes(group, input.prompt_tokens);
    result->prompt_bytes += prompt;
    result->rank_prompt_bytes += RankBytes(group, prompt, input.ranks);
    if (group.kind == GroupKind::kState) {
      result->state_bytes += prompt;
      continue;
    }
    const uint64_t block = BlockBytes(group, input.tokens_per_block);
    result->block_bytes += block;
    result->rank_block_bytes += RankBytes(group, block, input.ranks);
    result->token_bytes += group.layers * group.token_bytes;
    if (group.kind == GroupKind::kFull) result->token_bytes_past_windows += group.layers * group.token_bytes;
  }
}

void AddTimes(const CalcInput& input, const PrefixBytes& loaded, CalcResult* result) {
  if (input.path.has_value()) result->load_seconds = LoadSeconds(*input.path, result->loaded_bytes);
  if (!input.prefill_tokens_per_second.has_value()) return;
  result->recompute_seconds = RecomputeSeconds(input.prompt_tokens, *input.prefill_tokens_per_second);
  if (input.flop_per_second.has_value()) result->recompute_flop = *result->recompute_seconds * *input.flop_per_second;
  if (!input.path.has_value()) return;
  result->load = *result->load_seconds < *result->recompute_seconds;
  result->break_even_tokens = BreakEvenTokens(loaded, *input.path, *input.prefill_tokens_per_second);
}

Table GroupTable(const CalcInput& input) {
  Table table({{"kind", "KIND"},
               {"layers", "LAYERS"},
               {"window_tokens", "WINDOW"},
               {"bytes_per_token", "TOKEN"},
               {"bytes_per_block", "BLOCK"},
               {"bytes_per_block_and_rank", "BLOCK/RANK"},
               {"bytes_per_prompt", "PROMPT"}});
  for (const LayerGroup& group : input.groups) {
    const bool state = group.kind == GroupKind::kState;
    const uint64_t block = BlockBytes(group, input.tokens_per_block);
    table.AddRow({Value::Text(Name(group.kind)), Value::Count(group.layers),
                  group.kind == GroupKind::kWindow ? Value::Count(group.window_tokens) : Value::None(),
                  state ? Value::None() : Value::Bytes(group.layers * group.token_bytes), Value::Bytes(block),
                  Value::Bytes(RankBytes(group, block, input.ranks)),
                  Value::Bytes(PromptBytes(group, input.prompt_tokens))});
  }
  return table;
}

// One of the values that need a path or a rate.
Value Maybe(const std::optional<double>& value, Value (*make)(double)) {
  return value.has_value() ? make(*value) : Value::None();
}

void AddPathFields(const CalcInput& input, const CalcResult& result, Report* report) {
  const auto rate = input.path.has_value() ? std::optional<double>(input.path->bytes_per_second) : std::nullopt;
  const auto fixed = input.path.has_value() ? std::optional<double>(input.path->fixed_seconds) : std::nullopt;
  report->Add("bandwidth_bytes_per_second", "bandwidth", Maybe(rate, Value::BytesPerSecond));
  report->Add("fixed_seconds", "fixed latency", Maybe(fixed, Value::Seconds));
  report->Add("load_seconds", "load time", Maybe(result.load_seconds, Value::Seconds));
}

void AddComputeFields(const CalcInput& input, const CalcResult& result, Report* report) {
  report->Add("parameters", "parameters of a token",
              input.parameters.has_value() ? Value::Quantity(*input.parameters, "B") : Value::None());
  const auto quantity = [](const std::optional<double>& value) {
    return value.has_value() ? Value::Quantity(*value) : Value::None();
  };
  report->Add("flop_per_second", "FLOP/s", quantity(input.flop_per_second));
  report->Add("recompute_flop", "recompute FLOP", quantity(result.recompute_flop));
  report->Add("prefill_tokens_per_second", "prefill tokens/s", quantity(input.prefill_tokens_per_second));
  report->Add("recompute_seconds", "recompute time", Maybe(result.recompute_seconds, Value::Seconds));
}

void AddVerdict(const CalcResult& result, Report* report) {
  report->Add("verdict", "verdict",
              result.load.has_value() ? Value::Text(*result.load ? "load" : "recompute") : Value::None());
  Value break_even = Value::None();
  if (result.break_even_tokens.has_value()) {
    break_even =
        result.break_even_tokens->has_value() ? Value::Count(**result.break_even_tokens) : Value::None("never");
  }
  report->Add("break_even_tokens", "break-even tokens", std::move(break_even));
}

}  // namespace

absl::StatusOr<CalcResult> Calculate(const CalcInput& input) {
  for (const LayerGroup& group : input.groups) {
    if (absl::Status status = CheckRanks(group, input.ranks); !status.ok()) return status;
  }
  CalcResult result;
  AddSizes(input, &result);
  const PrefixBytes loaded = LoadedBytes(input.groups, input.ranks);
  result.loaded_bytes = loaded.At(input.prompt_tokens);
  AddTimes(input, loaded, &result);
  return result;
}

Report CalcReport(const CalcInput& input, const CalcResult& result) {
  Report report;
  report.Add("model", "model", Value::Text(input.model));
  report.Add("prompt_tokens", "prompt tokens", Value::Count(input.prompt_tokens));
  report.Add("tokens_per_block", "tokens per block", Value::Count(input.tokens_per_block));
  report.Add("ranks", "ranks", Value::Count(input.ranks));
  report.Add("groups", GroupTable(input));
  report.Add("bytes_per_token", "bytes per token", Value::Bytes(result.token_bytes));
  report.Add("bytes_per_token_past_windows", "  beyond the windows", Value::Bytes(result.token_bytes_past_windows));
  report.Add("bytes_per_block", "bytes per block", Value::Bytes(result.block_bytes));
  report.Add("bytes_per_block_and_rank", "  of one rank", Value::Bytes(result.rank_block_bytes));
  report.Add("state_bytes", "bytes of states", Value::Bytes(result.state_bytes));
  report.Add("bytes_per_prompt", "bytes per prompt", Value::Bytes(result.prompt_bytes));
  report.Add("bytes_per_prompt_and_rank", "  of one rank", Value::Bytes(result.rank_prompt_bytes));
  report.Add("loaded_bytes", "  loaded by all ranks", Value::Bytes(result.loaded_bytes));
  AddPathFields(input, result, &report);
  AddComputeFields(input, result, &report);
  AddVerdict(result, &report);
  return report;
}

}  // namespace quarry::ctl
