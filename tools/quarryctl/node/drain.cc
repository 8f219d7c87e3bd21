// quarryctl drain: the node refuses new work from now on.
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"

namespace quarry::ctl {
namespace {

class DrainCommand : public NodeCommand {
 public:
  std::string name() const override { return "drain"; }
  std::string help() const override { return "Lets the node refuse new work until it is restarted"; }
  void AddFlags(CLI::App*) override {}

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const auto drained = connection->Call(&v1::Admin::Stub::Drain, v1::DrainRequest());
    if (!drained.ok()) return drained.status();
    Report report;
    report.Add("draining", "draining", Value::Flag(true));
    context.Print(report);
    return ExitCode::kOk;
  }
};

}  // namespace

std::unique_ptr<Command> NewDrainCommand() { return std::make_unique<DrainCommand>(); }

}  // namespace quarry::ctl
