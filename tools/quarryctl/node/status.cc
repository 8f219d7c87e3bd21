// quarryctl status: a node at a glance.
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/health.h"

namespace quarry::ctl {
namespace {

class StatusCommand : public NodeCommand {
 public:
  std::string name() const override { return "status"; }
  std::string help() const override { return "The node at a glance"; }
  void AddFlags(CLI::App*) override {}

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const auto stats = connection->Call(&v1::Cache::Stub::Stats, v1::StatsRequest());
    if (!stats.ok()) return stats.status();
    const auto health = connection->Call(&v1::Admin::Stub::GetHealth, v1::GetHealthRequest());
    if (!health.ok()) return health.status();
    Report report;
    report.Add("server", "server", Value::Text(context.globals.server));
    report.Add("version", "version", Value::Text(stats->version()));
    report.Add("uptime_seconds", "uptime", Value::Seconds(static_cast<double>(stats->uptime_ms()) / 1e3));
    report.Add("ready", "ready", Value::Flag(health->ready()));
    report.Add("arena_bytes", "memory", Value::Bytes(stats->arena_bytes()));
    report.Add("used_bytes", "used", Value::Bytes(stats->used_bytes()));
    report.Add("leased_bytes", "leased", Value::Bytes(stats->leased_bytes()));
    report.Add("blocks", "blocks", Value::Count(stats->blocks()));
    report.Add("sessions", "sessions", Value::Count(stats->sessions()));
    report.Add("hit_ratio", "hit ratio", Value::Ratio(stats->match_hits(), stats->match_hashes()));
    report.Add("parts", PartsTable(*health));
    context.Print(report);
    return ExitCode::kOk;
  }
};

}  // namespace

std::unique_ptr<Command> NewStatusCommand() { return std::make_unique<StatusCommand>(); }

}  // namespace quarry::ctl
