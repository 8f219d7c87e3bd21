#include "tools/quarryctl/completion_command.h"

#include <CLI/CLI.hpp>

#include "tools/quarryctl/completion.h"
#include "tools/quarryctl/flags.h"

namespace quarry::ctl {

void CompletionCommand::AddFlags(CLI::App* app) {
  AddChoice(app, "shell", &shell_, "The shell, as in: source <(quarryctl completion bash)", {"bash", "zsh"})
      ->required();
}

absl::StatusOr<ExitCode> CompletionCommand::Run(const Context& context) {
  context.out << (shell_ == "bash" ? BashCompletion(context.program) : ZshCompletion(context.program));
  return ExitCode::kOk;
}

}  // namespace quarry::ctl
