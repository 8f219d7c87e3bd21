// quarryctl rm: drops blocks.
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/hashes.h"

namespace quarry::ctl {
namespace {

class RemoveCommand : public NodeCommand {
 public:
  std::string name() const override { return "rm"; }
  std::string help() const override { return "Drops blocks, leased or not"; }
  void AddFlags(CLI::App* app) override { blocks_.AddTo(app); }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const auto removed = blocks_.Ask(connection, &v1::Cache::Stub::Remove);
    if (!removed.ok()) return removed.status();
    Report report;
    report.Add("removed", "removed", Value::Count(removed->removed()));
    context.Print(report);
    return removed->removed() > 0 ? ExitCode::kOk : ExitCode::kNo;
  }

 private:
  BlocksArguments blocks_;
};

}  // namespace

std::unique_ptr<Command> NewRemoveCommand() { return std::make_unique<RemoveCommand>(); }

}  // namespace quarry::ctl
