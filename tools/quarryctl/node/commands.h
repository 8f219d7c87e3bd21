// The commands that ask a node over gRPC. Each is in a file that bears its name.
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
std::unique_ptr<Command> NewTopCommand();
std::unique_ptr<Command> NewReportCommand();
std::unique_ptr<Command> NewSsdCommand();

// Its blocks.
std::unique_ptr<Command> NewMatchCommand();
std::unique_ptr<Command> NewExplainCommand();
std::unique_ptr<Command> NewLookupCommand();
std::unique_ptr<Command> NewListCommand();
std::unique_ptr<Command> NewGetCommand();
std::unique_ptr<Command> NewPutCommand();
std::unique_ptr<Command> NewRemoveCommand();
std::unique_ptr<Command> NewPinCommand();
std::unique_ptr<Command> NewUnpinCommand();
std::unique_ptr<Command> NewWarmCommand();
std::unique_ptr<Command> NewWatchCommand();
std::unique_ptr<Command> NewExportCommand();
std::unique_ptr<Command> NewImportCommand();

void AddNodeCommands(Commands* commands);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_NODE_COMMANDS_H_
