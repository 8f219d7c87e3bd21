// From the parsed settings to the exit code: start, serve, reload, drain.
#ifndef QUARRY_SERVER_LIFE_CYCLE_H_
#define QUARRY_SERVER_LIFE_CYCLE_H_

#include <functional>

#include "server/config.h"

namespace quarry::server {

// Runs a node until SIGTERM or SIGINT; the calling thread must be the only one. A second
// such signal ends the drain at once. On SIGHUP `reload` reads the settings again.
// Returns the exit code: 0, or 1 when the node could not start.
int RunDaemon(const ServerConfig& config, const std::function<CommandLine()>& reload);

}  // namespace quarry::server

#endif  // QUARRY_SERVER_LIFE_CYCLE_H_
