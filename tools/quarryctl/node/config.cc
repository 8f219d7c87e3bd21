// quarryctl config [NAME]: the node's settings in force.
#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "tools/quarryctl/flags.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"

namespace quarry::ctl {
namespace {

class ConfigCommand : public NodeCommand {
 public:
  std::string name() const override { return "config"; }
  std::string help() const override { return "The node's settings in force"; }
  void AddFlags(CLI::App* app) override { AddText(app, "NAME", &setting_, "Only this setting")->type_name(""); }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const auto config = connection->Call(&v1::Admin::Stub::GetConfig, v1::GetConfigRequest());
    if (!config.ok()) return config.status();
    Table table({{"name", "SETTING"},
                 {"value", "VALUE"},
                 {"given", "GIVEN"},
                 {"reloadable", "RELOADABLE"},
                 {"help", "", /*below=*/true}});
    for (const v1::ConfigValue& value : config->values()) {
      if (!setting_.empty() && value.name() != setting_) continue;
      table.AddRow({Value::Text(value.name()), Value::Text(value.value()), Value::Flag(value.given()),
                    Value::Flag(value.reloadable()), Value::Text(value.help())});
    }
    if (table.rows().empty()) return absl::NotFoundError(absl::StrCat("the node has no setting \"", setting_, "\""));
    Report report;
    report.Add("settings", std::move(table));
    context.Print(report);
    return ExitCode::kOk;
  }

 private:
  std::string setting_;
};

}  // namespace

std::unique_ptr<Command> NewConfigCommand() { return std::make_unique<ConfigCommand>(); }

}  // namespace quarry::ctl
