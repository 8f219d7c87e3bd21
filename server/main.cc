// quarryd.
#include <cstdio>

#include "server/check_command.h"
#include "server/config.h"
#include "server/life_cycle.h"

int main(int argc, char** argv) {
  const auto parse = [&] { return quarry::server::ParseCommandLine(argc, argv); };
  const quarry::server::CommandLine command_line = parse();
  if (!command_line.config.has_value()) {
    std::fputs(command_line.output.c_str(), command_line.exit_code == 0 ? stdout : stderr);
    return command_line.exit_code;
  }
  if (!command_line.check_dir.empty()) return quarry::server::RunCheck(command_line.check_dir);
  return quarry::server::RunDaemon(*command_line.config, parse);
}
