#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/units.h"
#include "tools/bench/replay.h"

namespace quarry::bench {
namespace {

using Json = nlohmann::ordered_json;

// By name, those that occurred. Name is overloaded on the enum.
template <typename Enum>
Json ByName(const uint64_t* counts, int size) {
  Json json = Json::object();
  for (int i = 0; i < size; ++i) {
    if (counts[i] != 0) json[std::string(Name(static_cast<Enum>(i)))] = counts[i];
  }
  return json;
}

std::string Listed(const Json& by_name) {
  if (by_name.empty()) return "none";
  std::string text;
  for (const auto& [name, count] : by_name.items()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, " ", count.get<uint64_t>());
  }
  return text;
}

void AddLatencies(const char* what, const Latencies& latencies, Json* json) {
  (*json)[absl::StrCat(what, "_p50_us")] = latencies.PercentileUs(0.50);
  (*json)[absl::StrCat(what, "_p90_us")] = latencies.PercentileUs(0.90);
  (*json)[absl::StrCat(what, "_p99_us")] = latencies.PercentileUs(0.99);
}

std::string LatencyLine(const char* what, const Latencies& latencies) {
  return absl::StrFormat("  %-5s p50 %9.0f us   p90 %9.0f us   p99 %9.0f us   (%d)\n", what,
                         latencies.PercentileUs(0.50), latencies.PercentileUs(0.90), latencies.PercentileUs(0.99),
                         latencies.count());
}

double Rate(uint64_t bytes, double seconds) { return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0; }

double Share(uint64_t part, uint64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

Json SsdJson(const ReplayOptions& options, const ReplayReport& report) {
  const ReplaySsd& ssd = *report.ssd;
  const SsdCounters& counters = ssd.counters;
  return {
      {"io", counters.io_engine},
      {"write_budget_bytes", options.server.ssd_write_budget_bytes},
      {"capacity_blocks", ssd.capacity_blocks},
      {"capacity_share", Share(ssd.capacity_blocks, report.distinct_blocks)},
      {"memory_share", Share(report.capacity_blocks, report.distinct_blocks)},
      {"hit_blocks", report.counts.ssd_hit_blocks},
      {"hit_ratio_blocks", Share(report.counts.ssd_hit_blocks, report.counts.hits.blocks)},
      {"spilled_blocks", counters.spilled_records},
      {"spilled_bytes", counters.spilled_bytes},
      {"moved_bytes", counters.moved_bytes},
      {"catalog_bytes", counters.catalog_bytes},
      {"device_bytes", counters.device_bytes},
      {"loaded_bytes", counters.loaded_bytes},
      {"write_amplification", ssd.write_amplification()},
      {"record_write_amplification", counters.write_amplification()},
      {"evicted_blocks", ssd.evicted_blocks()},
      {"unspilled_blocks", counters.unspilled_blocks},
      {"over_budget_blocks", counters.over_budget_blocks},
      {"reclaimed_extents", counters.reclaimed_extents},
      {"size_bytes", counters.size_bytes},
      {"live_bytes", counters.live_bytes},
      {"live_blocks", counters.live_records},
      {"over_provisioning", ssd.over_provisioning()},
  };
}

std::string SsdText(const ReplayOptions& options, const ReplayReport& report) {
  const ReplaySsd& ssd = *report.ssd;
  const SsdCounters& counters = ssd.counters;
  const uint64_t blocks = report.counts.hits.blocks;
  const uint64_t memory_hits = report.counts.hits.hit_blocks - report.counts.ssd_hit_blocks;
  std::string text = absl::StrFormat(
      "  by tier: %.2f %% of blocks from memory, %.2f %% from the SSD (%s)\n"
      "room: memory for %d blocks (%.2f %% of the distinct ones), SSD for %d (%.2f %%)\n",
      Share(memory_hits, blocks) * 100, Share(report.counts.ssd_hit_blocks, blocks) * 100, counters.io_engine,
      report.capacity_blocks, Share(report.capacity_blocks, report.distinct_blocks) * 100, ssd.capacity_blocks,
      Share(ssd.capacity_blocks, report.distinct_blocks) * 100);
  absl::StrAppendFormat(&text,
                        "written to the SSD: %s by spill (%d blocks), %s by reclaim, %s by the catalog; write "
                        "amplification %.3f (%.3f with headers taken for payload)\n",
                        FormatBytes(counters.spilled_bytes), counters.spilled_records,
                        FormatBytes(counters.moved_bytes), FormatBytes(counters.catalog_bytes),
                        ssd.write_amplification(), counters.write_amplification());
  absl::StrAppendFormat(&text, "evicted: %d blocks from the SSD, %d unspilled (%d that it was late for",
                        ssd.evicted_blocks(), counters.unspilled_blocks, ssd.late_blocks());
  if (options.server.ssd_write_budget_bytes != 0) {
    absl::StrAppendFormat(&text, ", %d times one was beyond the budget of %s a day", counters.over_budget_blocks,
                          FormatBytes(options.server.ssd_write_budget_bytes));
  }
  absl::StrAppendFormat(&text, ")\nSSD at the end: %s live of %s, %.1f %% over-provisioning; %d extents reclaimed\n",
                        FormatBytes(counters.live_bytes), FormatBytes(counters.size_bytes),
                        ssd.over_provisioning() * 100, counters.reclaimed_extents);
  return text;
}

}  // namespace

std::string FormatJson(const ReplayOptions& options, const ReplayReport& report) {
  const ReplayCounts& counts = report.counts;
  Json json;
  json["requests"] = counts.requests;
  json["concurrency"] = options.concurrency;
  json["speed"] = options.speed == 0 ? Json("max") : Json(options.speed);
  json["block_bytes"] = options.block_bytes;
  json["segment_bytes"] = options.segment_bytes;
  json["seconds"] = report.seconds;
  json["hit_ratio_tokens"] = counts.hits.token_ratio();
  json["hit_ratio_blocks"] = counts.hits.block_ratio();
  json["best_hit_ratio_tokens"] = report.best.token_ratio();
  json["best_hit_ratio_blocks"] = report.best.block_ratio();
  if (report.simulated.has_value()) {
    json["simulated_hit_ratio_tokens"] = report.simulated->token_ratio();
    json["simulated_hit_ratio_blocks"] = report.simulated->block_ratio();
    json["capacity_blocks"] = report.capacity_blocks;
  }
  json["distinct_blocks"] = report.distinct_blocks;
  if (report.ssd.has_value()) json["ssd"] = SsdJson(options, report);
  json["gb_per_s"] = Rate(counts.got_bytes + counts.put_bytes, report.seconds);
  json["got_bytes"] = counts.got_bytes;
  json["put_bytes"] = counts.put_bytes;
  json["stored_blocks"] = counts.stored_blocks;
  json["already_there_blocks"] = counts.already_there_blocks;
  AddLatencies("match", counts.match, &json);
  AddLatencies("get", counts.get, &json);
  AddLatencies("put", counts.put, &json);
  if (options.speed > 0) AddLatencies("late", counts.late, &json);
  if (counts.estimates.gets != 0) {
    json["load_estimates"] = counts.estimates.gets;
    json["load_estimate_ratio"] = counts.estimates.estimated_seconds / counts.estimates.taken_seconds;
    json["load_estimates_within_25_percent"] = Share(counts.estimates.close, counts.estimates.gets);
  }
  json["miss_causes"] = ByName<MissCause>(counts.first_misses, kMissCauses);
  json["get_misses"] = ByName<MissCause>(counts.get_misses, kMissCauses);
  json["refused"] = counts.refused();
  json["refusal_reasons"] = ByName<RefusalReason>(counts.refusals, kRefusalReasons);
  json["errors"] = counts.errors;
  json["wrong_bytes"] = counts.wrong_bytes;
  if (!counts.first_error.empty()) json["first_error"] = counts.first_error;
  return json.dump(2) + "\n";
}

std::string FormatText(const ReplayOptions& options, const ReplayReport& report) {
  const ReplayCounts& counts = report.counts;
  std::string text = absl::StrFormat("%d requests in %.1f s, %d under way at a time, blocks of %s\n", counts.requests,
                                     report.seconds, options.concurrency, FormatBytes(options.block_bytes));
  absl::StrAppendFormat(&text, "hit ratio: %.2f %% of tokens, %.2f %% of blocks\n", counts.hits.token_ratio() * 100,
                        counts.hits.block_ratio() * 100);
  absl::StrAppendFormat(
      &text, "  best possible: %.2f %% of tokens, %.2f %% of blocks (a cache without bound; %d distinct blocks)\n",
      report.best.token_ratio() * 100, report.best.block_ratio() * 100, report.distinct_blocks);
  if (report.simulated.has_value()) {
    absl::StrAppendFormat(&text,
                          "  simulated:     %.2f %% of tokens, %.2f %% of blocks (the server's policy, room for %d "
                          "blocks, one request at a time)\n",
                          report.simulated->token_ratio() * 100, report.simulated->block_ratio() * 100,
                          report.ssd.has_value() ? report.ssd->capacity_blocks : report.capacity_blocks);
  }
  if (report.ssd.has_value()) text += SsdText(options, report);
  absl::StrAppendFormat(&text, "moved: %.2f GB/s; got %s, put %s\n",
                        Rate(counts.got_bytes + counts.put_bytes, report.seconds), FormatBytes(counts.got_bytes),
                        FormatBytes(counts.put_bytes));
  absl::StrAppend(&text, "latency of a request's match, gets and puts, checking and making content included:\n",
                  LatencyLine("match", counts.match), LatencyLine("get", counts.get), LatencyLine("put", counts.put));
  if (options.speed > 0) absl::StrAppend(&text, LatencyLine("late", counts.late));
  if (counts.estimates.gets != 0) {
    absl::StrAppendFormat(&text,
                          "load times as matches foretold them: %.2f of what %d gets took; %.0f %% within a quarter\n",
                          counts.estimates.estimated_seconds / counts.estimates.taken_seconds, counts.estimates.gets,
                          Share(counts.estimates.close, counts.estimates.gets) * 100);
  }
  absl::StrAppend(&text, "matches ended by: ", Listed(ByName<MissCause>(counts.first_misses, kMissCauses)), "\n");
  absl::StrAppend(&text, "leased blocks missed by a get: ", Listed(ByName<MissCause>(counts.get_misses, kMissCauses)),
                  "\n");
  absl::StrAppend(&text, "puts refused: ", Listed(ByName<RefusalReason>(counts.refusals, kRefusalReasons)), "\n");
  absl::StrAppend(&text, "errors: ", counts.errors, ", wrong bytes: ", counts.wrong_bytes, "\n");
  if (!counts.first_error.empty()) absl::StrAppend(&text, "first error: ", counts.first_error, "\n");
  return text;
}

}  // namespace quarry::bench
