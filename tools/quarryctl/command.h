// What a command of quarryctl is. To add one: derive from Command in a file of its own, and
// list it in main.cc. Help, completion, configuration and variables follow from its flags.
#ifndef QUARRY_TOOLS_QUARRYCTL_COMMAND_H_
#define QUARRY_TOOLS_QUARRYCTL_COMMAND_H_

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/quarryctl/report.h"

namespace quarry::ctl {

enum class ExitCode : int {
  kOk = 0,
  kNo = 1,      // the answer is "no": not found, a miss, unhealthy
  kUsage = 2,   // bad flag, variable, file or value
  kFailed = 3,  // the server cannot be reached, or failed
};

// The flags that every command has.
struct GlobalOptions {
  std::string server = "127.0.0.1:7420";  // gRPC
  std::string tenant;                     // empty: whoever the server takes the caller for
  int64_t timeout_ns = 10'000'000'000;    // of one call
  bool json = false;
};

// What a running command sees. Valid during Run only.
struct Context {
  const GlobalOptions& globals;
  const CLI::App& program;  // the whole tree of commands and flags
  std::ostream& out;

  // As a table, or with --json as JSON.
  void Print(const Report& report) const { out << (globals.json ? report.ToJson() : report.ToText()); }
};

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string help() const = 0;  // one line
  // Adds flags (flags.h), positional arguments and, if there are several verbs, subcommands
  // of its own. What they store into must live as long as the command. Called once.
  virtual void AddFlags(CLI::App* app) = 0;
  // Called at most once, after the flags are stored. An error is printed to stderr and ends
  // the program with ExitCodeOf(error).
  virtual absl::StatusOr<ExitCode> Run(const Context& context) = 0;
};

using Commands = std::vector<std::unique_ptr<Command>>;

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_COMMAND_H_
