// Variables and the TOML file, for every flag that the program and its commands have.
#ifndef QUARRY_TOOLS_QUARRYCTL_CONFIG_FILE_H_
#define QUARRY_TOOLS_QUARRYCTL_CONFIG_FILE_H_

#include <CLI/App.hpp>

namespace quarry::ctl {

// Call after all flags are added. Adds --config (QUARRY_CTL_CONFIG, because QUARRY_CONFIG
// names quarryd's file), and gives each flag its variable: QUARRY_SERVER for --server,
// QUARRY_CALC_RANKS for --ranks of calc. In the file, global flags are keys of the top level
// and those of a command are in the table of its name; an unknown key or table is a
// CLI::ConfigError that names it. A variable wins over the file.
void AddConfiguration(CLI::App* program);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_CONFIG_FILE_H_
