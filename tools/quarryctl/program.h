// quarryctl around its commands: global flags, variables, the configuration file, errors.
#ifndef QUARRY_TOOLS_QUARRYCTL_PROGRAM_H_
#define QUARRY_TOOLS_QUARRYCTL_PROGRAM_H_

#include <ostream>

#include "absl/status/status.h"
#include "tools/quarryctl/command.h"

namespace quarry::ctl {

// InvalidArgument: kUsage. NotFound: kNo. All others: kFailed.
ExitCode ExitCodeOf(const absl::Status& error);

// Parses, runs the command that was named, and returns the exit code. Results and help go
// to `out`, errors to `err`, one line each, beginning with "quarryctl: ". Flags win over
// variables, and these over the file.
int RunProgram(const Commands& commands, int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_PROGRAM_H_
