// quarryctl: asks and manages Quarry. See README.md.
#include <iostream>
#include <memory>

#include "tools/quarryctl/calc/calc_command.h"
#include "tools/quarryctl/completion_command.h"
#include "tools/quarryctl/doctor/doctor_command.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/program.h"

int main(int argc, char** argv) {
  // A new command is one line here.
  quarry::ctl::Commands commands;
  commands.push_back(std::make_unique<quarry::ctl::CalcCommand>());
  commands.push_back(std::make_unique<quarry::ctl::DoctorCommand>());
  quarry::ctl::AddNodeCommands(&commands);
  commands.push_back(std::make_unique<quarry::ctl::CompletionCommand>());
  return quarry::ctl::RunProgram(commands, argc, argv, std::cout, std::cerr);
}
