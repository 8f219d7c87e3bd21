// quarryctl stats: every counter and gauge of a node.
#include "tools/quarryctl/node/commands.h"
#include "tools/quarryctl/node/connection.h"
#include "tools/quarryctl/node/names.h"

namespace quarry::ctl {
namespace {

void AddGauges(const v1::StatsResponse& stats, Report* report) {
  report->Add("version", "version", Value::Text(stats.version()));
  report->Add("uptime_seconds", "uptime", Value::Seconds(static_cast<double>(stats.uptime_ms()) / 1e3));
  report->Add("draining", "draining", Value::Flag(stats.draining()));
  report->Add("arena_bytes", "memory", Value::Bytes(stats.arena_bytes()));
  report->Add("used_bytes", "used", Value::Bytes(stats.used_bytes()));
  report->Add("payload_bytes", "payload", Value::Bytes(stats.payload_bytes()));
  report->Add("leased_bytes", "leased", Value::Bytes(stats.leased_bytes()));
  report->Add("index_bytes", "index", Value::Bytes(stats.index_bytes()));
  report->Add("blocks", "blocks", Value::Count(stats.blocks()));
  report->Add("complete_blocks", "complete blocks", Value::Count(stats.complete_blocks()));
  report->Add("leases", "leases", Value::Count(stats.leases()));
  report->Add("sessions", "sessions", Value::Count(stats.sessions()));
}

void AddCounters(const v1::StatsResponse& stats, Report* report) {
  report->Add("match_hashes", "hashes asked for", Value::Count(stats.match_hashes()));
  report->Add("match_hits", "of these usable", Value::Count(stats.match_hits()));
  report->Add("hit_ratio", "hit ratio", Value::Ratio(stats.match_hits(), stats.match_hashes()));
  report->Add("stored_shards", "stored shards", Value::Count(stats.stored_shards()));
  report->Add("stored_bytes", "stored", Value::Bytes(stats.stored_bytes()));
  report->Add("evicted_blocks", "evicted blocks", Value::Count(stats.evicted_blocks()));
}

void AddTables(const v1::StatsResponse& stats, Report* report) {
  Table misses({{"cause", "MISSES"}, {"count", "COUNT"}});
  for (const v1::CauseCount& miss : stats.misses()) {
    misses.AddRow({Value::Text(Name(miss.cause())), Value::Count(miss.count())});
  }
  report->Add("misses", std::move(misses));
  Table refusals({{"reason", "REFUSALS"}, {"count", "COUNT"}});
  for (const v1::RefusalCount& refusal : stats.refusals()) {
    refusals.AddRow({Value::Text(Name(refusal.reason())), Value::Count(refusal.count())});
  }
  report->Add("refusals", std::move(refusals));
  Table classes({{"slot_bytes", "SLOT"}, {"slabs", "SLABS"}, {"used_slots", "USED"}, {"free_slots", "FREE"}});
  for (const v1::SizeClassStats& size : stats.size_classes()) {
    classes.AddRow({Value::Bytes(size.slot_bytes()), Value::Count(size.slabs()), Value::Count(size.used_slots()),
                    Value::Count(size.free_slots())});
  }
  report->Add("size_classes", std::move(classes));
  Table namespaces({{"tenant", "TENANT"}, {"name", "NAMESPACE"}});
  for (const v1::NamespaceInfo& ns : stats.namespaces()) {
    namespaces.AddRow({Value::Text(ns.tenant()), Value::Text(ns.name())});
  }
  report->Add("namespaces", std::move(namespaces));
}

class StatsCommand : public NodeCommand {
 public:
  std::string name() const override { return "stats"; }
  std::string help() const override { return "Every counter of the node, misses by cause, refusals by reason"; }
  void AddFlags(CLI::App*) override {}

 protected:
  absl::StatusOr<ExitCode> Ask(Connection* connection, const Context& context) override {
    const auto stats = connection->Call(&v1::Cache::Stub::Stats, v1::StatsRequest());
    if (!stats.ok()) return stats.status();
    Report report;
    AddGauges(*stats, &report);
    AddCounters(*stats, &report);
    AddTables(*stats, &report);
    context.Print(report);
    return ExitCode::kOk;
  }
};

}  // namespace

std::unique_ptr<Command> NewStatsCommand() { return std::make_unique<StatsCommand>(); }

}  // namespace quarry::ctl
