#include "tools/quarryctl/program.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "common/net/socket.h"
#include "tools/quarryctl/config_file.h"
#include "tools/quarryctl/flags.h"

namespace quarry::ctl {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kHour = 3'600'000 * kMillisecond;
constexpr char kExitCodes[] =
    "Exit codes: 0 ok; 1 the answer is \"no\" (not found, a miss, unhealthy); 2 wrong usage;\n"
    "3 the server cannot be reached, or failed.";

void AddGlobalFlags(CLI::App* app, GlobalOptions* globals) {
  AddText(app, "--server", &globals->server, "gRPC address of quarryd", [](const std::string& value) {
    return ParseHostPort(value).status();
  })->type_name("HOST:PORT");
  AddText(app, "--tenant", &globals->tenant, "Tenant to ask about")->type_name("NAME");
  AddDuration(app, "--timeout", &globals->timeout_ns, "Deadline of a call to the server", kMillisecond, kHour);
  app->add_flag("--json", globals->json, "Print JSON");
}

int BadUsage(const std::string& message, std::ostream& err) {
  err << "quarryctl: " << message << "\n";
  return static_cast<int>(ExitCode::kUsage);
}

int Run(Command* command, const Context& context, std::ostream& err) {
  const absl::StatusOr<ExitCode> code = command->Run(context);
  if (code.ok()) return static_cast<int>(*code);
  err << "quarryctl: " << command->name() << ": " << code.status().message() << "\n";
  return static_cast<int>(ExitCodeOf(code.status()));
}

}  // namespace

ExitCode ExitCodeOf(const absl::Status& error) {
  if (absl::IsInvalidArgument(error)) return ExitCode::kUsage;
  return absl::IsNotFound(error) ? ExitCode::kNo : ExitCode::kFailed;
}

int RunProgram(const Commands& commands, int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  GlobalOptions globals;
  CLI::App app("Asks and manages Quarry's cache servers.", "quarryctl");
  app.set_version_flag("--version", "quarryctl " QUARRY_VERSION);
  app.require_subcommand(1);
  app.footer(kExitCodes);
  AddGlobalFlags(&app, &globals);
  std::vector<CLI::App*> parsers;
  for (const std::unique_ptr<Command>& command : commands) {
    CLI::App* parser = app.add_subcommand(command->name(), command->help());
    parser->fallthrough();  // global flags may stand after the command
    command->AddFlags(parser);
    parsers.push_back(parser);
  }
  AddConfiguration(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::FileError& error) {
    return BadUsage(std::string("--config: ") + error.what(), err);
  } catch (const CLI::Success& success) {
    return app.exit(success, out, err);
  } catch (const CLI::ParseError& error) {
    return BadUsage(error.what(), err);
  }
  const Context context{globals, app, out};
  for (size_t i = 0; i < commands.size(); ++i) {
    if (parsers[i]->parsed()) return Run(commands[i].get(), context, err);
  }
  return BadUsage("no command", err);  // not reached: require_subcommand
}

}  // namespace quarry::ctl
