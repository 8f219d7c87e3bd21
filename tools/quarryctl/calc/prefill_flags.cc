#include "tools/quarryctl/calc/prefill_flags.h"

#include <CLI/CLI.hpp>

#include "common/load_cost.h"
#include "tools/quarryctl/flags.h"

namespace quarry::ctl {

void PrefillFlags::AddTo(CLI::App* app, const std::string& parameters_help) {
  CLI::Option* rate =
      AddQuantity(app, "--prefill-tokens-per-s", &tokens_per_second_, "Prefill as the engine measures it; or:");
  CLI::Option* flops = AddQuantity(app, "--flops", &flop_per_second_,
                                   "FLOP/s that prefill reaches, as 400T; takes 2 x parameters a token");
  CLI::Option* parameters = AddQuantity(app, "--parameters", &parameters_, "As 70B, the active ones" + parameters_help);
  rate->excludes(flops);
  rate->excludes(parameters);
  parameters->needs(flops);
}

std::optional<double> PrefillFlags::TokensPerSecond() const {
  if (tokens_per_second_ > 0) return tokens_per_second_;
  if (flop_per_second_ == 0) return std::nullopt;
  return PrefillTokensPerSecond(parameters_, flop_per_second_);
}

}  // namespace quarry::ctl
