// quarryctl warm: brings blocks to DRAM.
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/hashes.h"

namespace quarry::ctl {
namespace {

class WarmCommand : public NodeCommand {
 public:
  std::string name() const override { return "warm"; }
  std::string help() const override { return "Brings a prompt's blocks to DRAM and counts as a use of them"; }
  void AddFlags(CLI::App* app) override { blocks_.AddTo(app); }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const auto request = blocks_.MakeRequest<v1::WarmRequest>(*connection);
    if (!request.ok()) return request.status();
    const auto warm = connection->Call(&v1::Admin::Stub::Warm, *request);
    if (!warm.ok()) return warm.status();
    const auto asked = static_cast<uint64_t>(request->hashes_size());
    Report report;
    report.Add("blocks", "blocks", Value::Count(asked));
    report.Add("in_dram", "in DRAM", Value::Count(warm->in_dram()));
    context.Print(report);
    return warm->in_dram() == asked ? ExitCode::kOk : ExitCode::kNo;
  }

 private:
  BlocksArguments blocks_;
};

}  // namespace

std::unique_ptr<Command> NewWarmCommand() { return std::make_unique<WarmCommand>(); }

}  // namespace quarry::ctl
