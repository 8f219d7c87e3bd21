// The rate of a prefill, as flags tell it.
#ifndef QUARRY_TOOLS_QUARRYCTL_CALC_PREFILL_FLAGS_H_
#define QUARRY_TOOLS_QUARRYCTL_CALC_PREFILL_FLAGS_H_

#include <CLI/App.hpp>
#include <optional>
#include <string>

namespace quarry::ctl {

// --prefill-tokens-per-s, or --flops and --parameters.
class PrefillFlags {
 public:
  // `parameters_help` says what parameters are when they are not given.
  void AddTo(CLI::App* app, const std::string& parameters_help);

  // --flops was given, --parameters was not.
  bool LacksParameters() const { return flop_per_second_ > 0 && parameters_ == 0; }
  void set_parameters(double parameters) { parameters_ = parameters; }

  // None was given. With --flops by PrefillTokensPerSecond (common/load_cost.h), of parameters
  // that are known by now.
  std::optional<double> TokensPerSecond() const;
  std::optional<double> parameters() const { return IfGiven(parameters_); }
  std::optional<double> flop_per_second() const { return IfGiven(flop_per_second_); }

 private:
  static std::optional<double> IfGiven(double value) { return value > 0 ? std::optional<double>(value) : std::nullopt; }

  double tokens_per_second_ = 0;  // 0 here and below: not given
  double flop_per_second_ = 0;
  double parameters_ = 0;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_CALC_PREFILL_FLAGS_H_
