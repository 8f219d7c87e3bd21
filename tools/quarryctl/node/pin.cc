// quarryctl pin, unpin: keeps blocks from being evicted.
#include <CLI/CLI.hpp>

#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/hashes.h"

namespace quarry::ctl {
namespace {

class PinCommand : public NodeCommand {
 public:
  std::string name() const override { return "pin"; }
  std::string help() const override { return "Keeps blocks until unpin, or until the node stops"; }
  void AddFlags(CLI::App* app) override { blocks_.AddTo(app); }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const auto pinned = blocks_.Ask(connection, &v1::Admin::Stub::Pin);
    if (!pinned.ok()) return pinned.status();
    const bool any = !pinned->pin().empty();
    Report report;
    report.Add("pinned", "pinned blocks", Value::Count(pinned->pinned()));
    report.Add("pin", "pin", any ? Value::Text(ToHex(pinned->pin())) : Value::None("none"));
    context.Print(report);
    return any ? ExitCode::kOk : ExitCode::kNo;
  }

 private:
  BlocksArguments blocks_;
};

class UnpinCommand : public NodeCommand {
 public:
  std::string name() const override { return "unpin"; }
  std::string help() const override { return "Ends a pin"; }
  void AddFlags(CLI::App* app) override { AddHash(app, "PIN", &pin_, "As pin printed it")->required(); }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    v1::UnpinRequest request;
    request.set_tenant(connection->tenant());
    request.set_pin(pin_);
    const auto unpinned = connection->Call(&v1::Admin::Stub::Unpin, request);
    if (!unpinned.ok()) return unpinned.status();
    Report report;
    report.Add("unpinned", "unpinned", Value::Flag(true));
    context.Print(report);
    return ExitCode::kOk;
  }

 private:
  std::string pin_;
};

}  // namespace

std::unique_ptr<Command> NewPinCommand() { return std::make_unique<PinCommand>(); }
std::unique_ptr<Command> NewUnpinCommand() { return std::make_unique<UnpinCommand>(); }

}  // namespace quarry::ctl
