#include "tools/quarryctl/node/health.h"

#include <algorithm>

#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"

namespace quarry::ctl {
namespace {

class HealthCommand : public NodeCommand {
 public:
  std::string name() const override { return "health"; }
  std::string help() const override { return "Whether the node serves, part by part"; }
  void AddFlags(CLI::App*) override {}

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const auto health = connection->Call(&v1::Admin::Stub::GetHealth, v1::GetHealthRequest());
    if (!health.ok()) return health.status();
    const bool healthy = IsHealthy(*health);
    Report report;
    report.Add("healthy", "healthy", Value::Flag(healthy));
    report.Add("ready", "ready", Value::Flag(health->ready()));
    report.Add("parts", PartsTable(*health));
    context.Print(report);
    return healthy ? ExitCode::kOk : ExitCode::kNo;
  }
};

}  // namespace

Table PartsTable(const v1::GetHealthResponse& health) {
  Table table({{"part", "PART"}, {"healthy", "HEALTHY"}, {"detail", "DETAIL"}});
  for (const v1::PartHealth& part : health.parts()) {
    table.AddRow({Value::Text(part.part()), Value::Flag(part.healthy()), Value::Text(part.detail())});
  }
  return table;
}

bool IsHealthy(const v1::GetHealthResponse& health) {
  return health.ready() && std::all_of(health.parts().begin(), health.parts().end(),
                                       [](const v1::PartHealth& part) { return part.healthy(); });
}

std::unique_ptr<Command> NewHealthCommand() { return std::make_unique<HealthCommand>(); }

}  // namespace quarry::ctl
