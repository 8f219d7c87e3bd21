// quarryctl report: what the cache has spared the engines.
#include <CLI/CLI.hpp>
#include <optional>

#include "common/load_cost.h"
#include "tools/quarryctl/calc/prefill_flags.h"
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"

namespace quarry::ctl {
namespace {

class ReportCommand : public NodeCommand {
 public:
  std::string name() const override { return "report"; }
  std::string help() const override { return "Tokens, and prefill seconds, that the cache has saved"; }
  void AddFlags(CLI::App* app) override { prefill_.AddTo(app, ""); }

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    if (prefill_.LacksParameters()) return absl::InvalidArgumentError("--parameters: needed with --flops");
    const auto stats = connection->Call(&v1::Cache::Stub::Stats, v1::StatsRequest());
    if (!stats.ok()) return stats.status();
    v1::ListNamespacesRequest request;
    request.set_tenant(connection->tenant());
    const auto list = connection->Call(&v1::Admin::Stub::ListNamespaces, request);
    if (!list.ok()) return list.status();
    context.Print(ReportOf(*stats, *list));
    return ExitCode::kOk;
  }

 private:
  // What computing so many tokens would have taken.
  Value Seconds(uint64_t tokens) const {
    const std::optional<double> rate = prefill_.TokensPerSecond();
    return rate.has_value() ? Value::Seconds(RecomputeSeconds(tokens, *rate)) : Value::None();
  }

  Report ReportOf(const v1::StatsResponse& stats, const v1::ListNamespacesResponse& list) const {
    uint64_t hashes = 0;
    uint64_t hits = 0;
    uint64_t tokens = 0;
    Table table({{"tenant", "TENANT"},
                 {"name", "NAMESPACE"},
                 {"model", "MODEL"},
                 {"match_hashes", "HASHES"},
                 {"hit_ratio", "HITS"},
                 {"saved_tokens", "SAVED TOKENS"},
                 {"saved_seconds", "SAVED PREFILL"}});
    for (const v1::NamespaceUsage& usage : list.namespaces()) {
      const v1::NamespaceInfo& ns = usage.namespace_();
      hashes += usage.match_hashes();
      hits += usage.match_hits();
      tokens += usage.saved_tokens();
      table.AddRow({Value::Text(ns.tenant()), Value::Text(ns.name()), Value::Text(ns.spec().model()),
                    Value::Count(usage.match_hashes()), Value::Ratio(usage.match_hits(), usage.match_hashes()),
                    Value::Count(usage.saved_tokens()), Seconds(usage.saved_tokens())});
    }
    const std::optional<double> rate = prefill_.TokensPerSecond();
    Report report;
    report.Add("uptime_seconds", "since the start, ago", Value::Seconds(static_cast<double>(stats.uptime_ms()) / 1e3));
    report.Add("match_hashes", "hashes asked for", Value::Count(hashes));
    report.Add("hit_ratio", "hit ratio", Value::Ratio(hits, hashes));
    report.Add("saved_tokens", "saved tokens", Value::Count(tokens));
    report.Add("prefill_tokens_per_second", "prefill tokens/s",
               rate.has_value() ? Value::Quantity(*rate) : Value::None());
    report.Add("saved_seconds", "saved prefill", Seconds(tokens));
    report.Add("namespaces", std::move(table));
    return report;
  }

  PrefillFlags prefill_;
};

}  // namespace

std::unique_ptr<Command> NewReportCommand() { return std::make_unique<ReportCommand>(); }

}  // namespace quarry::ctl
