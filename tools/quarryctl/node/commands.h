// The commands that ask a node over gRPC. Each is in the file that bears its name.
#ifndef QUARRY_TOOLS_QUARRYCTL_NODE_COMMANDS_H_
#define QUARRY_TOOLS_QUARRYCTL_NODE_COMMANDS_H_

#include <memory>

#include "tools/quarryctl/command.h"

namespace quarry::ctl {

// The node.
std::unique_ptr<Command> NewStatusCommand();
std::unique_ptr<Command> NewHealthCommand();
std::unique_ptr<Command> NewStatsCommand();
std::unique_ptr<Command> NewNamespacesCommand();
std::unique_ptr<Command> NewConfigCommand();
std::unique_ptr<Command> NewDrainCommand();
std::unique_ptr<Command> NewLogLevelCommand();

void AddNodeCommands(Commands* commands);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_COMMANDS_H_
