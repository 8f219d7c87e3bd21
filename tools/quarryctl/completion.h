// Shell completion, generated from the tree of commands and flags, so that it knows what the
// program knows.
#ifndef QUARRY_TOOLS_QUARRYCTL_COMPLETION_H_
#define QUARRY_TOOLS_QUARRYCTL_COMPLETION_H_

#include <CLI/App.hpp>
#include <string>

namespace quarry::ctl {

// A script that defines a completion function for `program.get_name()` and registers it:
// for `source <(...)`, or as a file of bash-completion.
std::string BashCompletion(const CLI::App& program);

// The same for zsh: for `source <(...)` after compinit, or as a file _quarryctl in $fpath.
std::string ZshCompletion(const CLI::App& program);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_COMPLETION_H_
