// quarryctl log-level LEVEL: until the node is restarted or reloads its settings.
#include <CLI/CLI.hpp>

#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"

namespace quarry::ctl {
namespace {

class LogLevelCommand : public NodeCommand {
 public:
  std::string name() const override { return "log-level"; }
  std::string help() const override { return "Sets what the node logs"; }
  void AddFlags(CLI::App* app) override {
    AddChoice(app, "LEVEL", &level_, "Least severity", {"trace", "debug", "info", "warn", "error", "off"})->required();
  }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    v1::SetLogLevelRequest request;
    request.set_level(level_);
    const auto set = connection->Call(&v1::Admin::Stub::SetLogLevel, request);
    if (!set.ok()) return set.status();
    Report report;
    report.Add("before", "before", Value::Text(set->before()));
    report.Add("level", "now", Value::Text(level_));
    context.Print(report);
    return ExitCode::kOk;
  }

 private:
  std::string level_;
};

}  // namespace

std::unique_ptr<Command> NewLogLevelCommand() { return std::make_unique<LogLevelCommand>(); }

}  // namespace quarry::ctl
