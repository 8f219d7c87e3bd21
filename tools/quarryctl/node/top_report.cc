#include "tools/quarryctl/node/top_report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/quarryctl/node/names.h"

namespace quarry::ctl {
namespace {

std::string Rate(double per_second) { return Value::Quantity(per_second).ToText() + "/s"; }
std::string Bytes(uint64_t bytes) { return Value::Bytes(bytes).ToText(); }

Value MeanTime(const OperationRates& rates) {
  return rates.mean_seconds.has_value() ? Value::Seconds(*rates.mean_seconds) : Value::None();
}

Table Operations(const NodeRates& rates, bool all) {
  Table table({{"operation", "OPERATION"},
               {"requests_per_second", "PER SECOND"},
               {"errors_per_second", "ERRORS"},
               {"mean_seconds", "MEAN TIME"}});
  for (const OperationRates& row : rates.operations) {
    if (!all && row.requests_per_second == 0 && !row.mean_seconds.has_value()) continue;
    table.AddRow({Value::Text(row.operation), Value::Quantity(row.requests_per_second),
                  Value::Quantity(row.errors_per_second), MeanTime(row)});
  }
  return table;
}

Table Namespaces(const NodeRates& rates) {
  Table table({{"tenant", "TENANT"},
               {"name", "NAMESPACE"},
               {"match_hashes_per_second", "HASHES/S"},
               {"hit_ratio", "HITS"},
               {"saved_tokens_per_second", "SAVED TOKENS/S"},
               {"blocks", "BLOCKS"},
               {"payload_bytes", "PAYLOAD"}});
  for (const NamespaceRates& row : rates.namespaces) {
    table.AddRow({Value::Text(row.tenant), Value::Text(row.name), Value::Quantity(row.hashes_per_second),
                  Value::Ratio(row.match_hits, row.match_hashes), Value::Quantity(row.saved_tokens_per_second),
                  Value::Count(row.blocks), Value::Bytes(row.payload_bytes)});
  }
  return table;
}

std::string NodeLine(const std::string& server, const NodeRates& rates, const v1::StatsResponse& stats) {
  const std::string uptime = Value::Seconds(static_cast<double>(stats.uptime_ms()) / 1e3).ToText();
  return absl::StrCat(server, ", version ", stats.version(), ", up ", uptime, ", ",
                      stats.draining() ? "DRAINING" : "serving", rates.restarted ? ", restarted just now" : "");
}

std::string RefusalLine(const NodeRates& rates) {
  std::vector<std::string> parts;
  for (const RefusalRate& refusal : rates.refusals) {
    if (refusal.per_second > 0) parts.push_back(absl::StrCat(Name(refusal.reason), " ", Rate(refusal.per_second)));
  }
  return parts.empty() ? "none" : absl::StrJoin(parts, ", ");
}

}  // namespace

Report TopPage(const std::string& server, const NodeRates& rates, const NodeSample& now) {
  const v1::StatsResponse& stats = now.stats;
  Report page;
  const auto add = [&](const std::string& label, const std::string& text) {
    page.Add(label, label, Value::Text(text));
  };
  add("node", NodeLine(server, rates, stats));
  add("memory", absl::StrCat(Bytes(stats.used_bytes()), " of ", Bytes(stats.arena_bytes()), " used (",
                             Value::Ratio(stats.used_bytes(), stats.arena_bytes()).ToText(), "), ",
                             Bytes(stats.leased_bytes()), " leased"));
  add("holds", absl::StrCat(stats.blocks(), " blocks, ", stats.leases(), " leases, ", stats.sessions(), " sessions"));
  add("matches", absl::StrCat(Rate(rates.matches_per_second), ", of ", Rate(rates.hashes_per_second), " hashes usable ",
                              Value::Ratio(rates.match_hits, rates.match_hashes).ToText(), ", ",
                              Rate(rates.saved_tokens_per_second), " tokens saved"));
  add("get", Value::BytesPerSecond(rates.get_bytes_per_second).ToText());
  add("put", Value::BytesPerSecond(rates.put_bytes_per_second).ToText());
  add("evicted", Rate(rates.evicted_blocks_per_second) + " blocks");
  add("refused", RefusalLine(rates));
  page.Add("namespaces", Namespaces(rates));
  page.Add("operations", Operations(rates, /*all=*/false));
  return page;
}

Report TopRecord(const std::string& server, const NodeRates& rates, const NodeSample& now) {
  const v1::StatsResponse& stats = now.stats;
  Report record;
  const auto add = [&](const std::string& key, Value value) { record.Add(key, key, std::move(value)); };
  add("server", Value::Text(server));
  add("version", Value::Text(stats.version()));
  add("uptime_seconds", Value::Seconds(static_cast<double>(stats.uptime_ms()) / 1e3));
  add("draining", Value::Flag(stats.draining()));
  add("restarted", Value::Flag(rates.restarted));
  add("interval_seconds", Value::Seconds(rates.seconds));
  add("arena_bytes", Value::Bytes(stats.arena_bytes()));
  add("used_bytes", Value::Bytes(stats.used_bytes()));
  add("leased_bytes", Value::Bytes(stats.leased_bytes()));
  add("blocks", Value::Count(stats.blocks()));
  add("leases", Value::Count(stats.leases()));
  add("sessions", Value::Count(stats.sessions()));
  add("matches_per_second", Value::Quantity(rates.matches_per_second));
  add("match_hashes_per_second", Value::Quantity(rates.hashes_per_second));
  add("hit_ratio", Value::Ratio(rates.match_hits, rates.match_hashes));
  add("saved_tokens_per_second", Value::Quantity(rates.saved_tokens_per_second));
  add("get_bytes_per_second", Value::BytesPerSecond(rates.get_bytes_per_second));
  add("put_bytes_per_second", Value::BytesPerSecond(rates.put_bytes_per_second));
  add("evicted_blocks_per_second", Value::Quantity(rates.evicted_blocks_per_second));
  Table refusals({{"reason", ""}, {"per_second", ""}});
  for (const RefusalRate& refusal : rates.refusals) {
    refusals.AddRow({Value::Text(Name(refusal.reason)), Value::Quantity(refusal.per_second)});
  }
  record.Add("refusals", std::move(refusals));
  record.Add("operations", Operations(rates, /*all=*/true));
  record.Add("namespaces", Namespaces(rates));
  return record;
}

}  // namespace quarry::ctl
