// quarryctl calc: what a model's KV weighs, and whether loading it beats computing it again.
#ifndef QUARRY_TOOLS_QUARRYCTL_CALC_CALC_COMMAND_H_
#define QUARRY_TOOLS_QUARRYCTL_CALC_CALC_COMMAND_H_

#include <list>
#include <string>

#include "tools/quarryctl/calc/calculation.h"
#include "tools/quarryctl/calc/config_fields.h"
#include "tools/quarryctl/calc/model_config.h"
#include "tools/quarryctl/calc/prefill_flags.h"
#include "tools/quarryctl/command.h"

namespace quarry::ctl {

class CalcCommand : public Command {
 public:
  std::string name() const override { return "calc"; }
  std::string help() const override { return "Sizes of a model's KV; whether to load or recompute a prompt"; }
  void AddFlags(CLI::App* app) override;
  absl::StatusOr<ExitCode> Run(const Context& context) override;

 private:
  // A flag that stands for a field of config.json.
  struct ShapeFlag {
    std::string flag;
    std::string field;
    uint64_t value = 0;
    CLI::Option* option = nullptr;
  };

  CLI::Option* AddShapeFlag(CLI::App* app, const std::string& flag, const std::string& field, uint64_t most,
                            const std::string& help);
  void AddModelFlags(CLI::App* app);
  void AddPathFlags(CLI::App* app);

  absl::StatusOr<ConfigFields> ReadModel() const;
  absl::Status FillPath();
  absl::Status FillRate(const ConfigFields& fields);

  CalcInput input_;
  ElementBytes element_bytes_;
  std::string model_config_;
  std::list<ShapeFlag> shape_flags_;  // flags store into its elements
  double bandwidth_ = 0;              // 0 here and below: not given
  double iops_ = 0;
  uint64_t io_bytes_ = 0;
  int64_t fixed_latency_ns_ = 0;
  PrefillFlags prefill_;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_CALC_CALC_COMMAND_H_
