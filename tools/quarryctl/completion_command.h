// quarryctl completion bash|zsh: prints the shell's completion script.
#ifndef QUARRY_TOOLS_QUARRYCTL_COMPLETION_COMMAND_H_
#define QUARRY_TOOLS_QUARRYCTL_COMPLETION_COMMAND_H_

#include <string>

#include "tools/quarryctl/command.h"

namespace quarry::ctl {

class CompletionCommand : public Command {
 public:
  std::string name() const override { return "completion"; }
  std::string help() const override { return "Prints a script of completions for a shell"; }
  void AddFlags(CLI::App* app) override;
  absl::StatusOr<ExitCode> Run(const Context& context) override;

 private:
  std::string shell_;
};

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_COMPLETION_COMMAND_H_
