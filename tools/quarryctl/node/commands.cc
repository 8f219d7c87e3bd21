#include "tools/quarryctl/node/commands.h"

namespace quarry::ctl {

void AddNodeCommands(Commands* commands) {
  for (const auto make :
       {NewStatusCommand, NewHealthCommand,   NewStatsCommand,  NewNamespacesCommand, NewConfigCommand,
        NewDrainCommand,  NewLogLevelCommand, NewTopCommand,    NewReportCommand,     NewSsdCommand,
        NewMatchCommand,  NewExplainCommand,  NewLookupCommand, NewListCommand,       NewGetCommand,
        NewPutCommand,    NewRemoveCommand,   NewPinCommand,    NewUnpinCommand,      NewWarmCommand,
        NewWatchCommand,  NewExportCommand,   NewImportCommand}) {
    commands->push_back(make());
  }
}

}  // namespace quarry::ctl
