// quarryctl calc without its flags: from a model and a path to sizes, times and a verdict.
#ifndef QUARRY_TOOLS_QUARRYCTL_CALC_CALCULATION_H_
#define QUARRY_TOOLS_QUARRYCTL_CALC_CALCULATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/load_cost.h"
#include "tools/quarryctl/calc/kv_shape.h"
#include "tools/quarryctl/report.h"

namespace quarry::ctl {

struct CalcInput {
  std::string model;  // for the report
  std::vector<LayerGroup> groups;
  uint64_t prompt_tokens = 8192;
  uint64_t tokens_per_block = 16;
  uint64_t ranks = 1;
  // Without a path nothing is said about loading, without a rate nothing about computing.
  std::optional<LoadPath> path;  // what all ranks share
  std::optional<double> prefill_tokens_per_second;
  // Where the rate comes from, if it was computed.
  std::optional<double> parameters;
  std::optional<double> flop_per_second;
};

struct CalcResult {
  uint64_t token_bytes = 0;               // of layers with attention, while no window is full
  uint64_t token_bytes_past_windows = 0;  // of those that see the whole prompt
  uint64_t block_bytes = 0;               // without states
  uint64_t rank_block_bytes = 0;
  uint64_t state_bytes = 0;
  uint64_t prompt_bytes = 0;  // as stored, each head and latent once
  uint64_t rank_prompt_bytes = 0;
  uint64_t loaded_bytes = 0;  // by all ranks together
  std::optional<double> load_seconds;
  std::optional<double> recompute_seconds;
  std::optional<double> recompute_flop;
  // Both below are set when both times are known.
  std::optional<bool> load;                                  // the verdict; a tie is recomputed
  std::optional<std::optional<uint64_t>> break_even_tokens;  // none: loading never wins
};

// InvalidArgument: the ranks do not fit the model.
absl::StatusOr<CalcResult> Calculate(const CalcInput& input);

Report CalcReport(const CalcInput& input, const CalcResult& result);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_CALC_CALCULATION_H_
