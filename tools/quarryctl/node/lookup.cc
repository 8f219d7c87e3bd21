// quarryctl lookup: what the node knows of each block.
#include <algorithm>

#include "tools/quarryctl/node/block_rows.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/hashes.h"
#include "tools/quarryctl/node/names.h"

namespace quarry::ctl {
namespace {

class LookupCommand : public NodeCommand {
 public:
  std::string name() const override { return "lookup"; }
  std::string help() const override { return "What the node knows of each block"; }
  void AddFlags(CLI::App* app) override { blocks_.AddTo(app); }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const auto found = blocks_.Ask(connection, &v1::Cache::Stub::Lookup);
    if (!found.ok()) return found.status();
    Table table(BlockColumns());
    for (const v1::BlockInfo& block : found->blocks()) table.AddRow(BlockRow(block));
    Report report;
    report.Add("blocks", std::move(table));
    context.Print(report);
    const bool all = std::all_of(found->blocks().begin(), found->blocks().end(),
                                 [](const v1::BlockInfo& block) { return IsThere(block.state()); });
    return all ? ExitCode::kOk : ExitCode::kNo;
  }

 private:
  BlocksArguments blocks_;
};

}  // namespace

std::unique_ptr<Command> NewLookupCommand() { return std::make_unique<LookupCommand>(); }

}  // namespace quarry::ctl
