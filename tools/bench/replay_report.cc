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

double Share(uint64_t part, uint64_t all) { return static_cast<double>(part) / static_cast<double>(all); }

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
                          report.capacity_blocks);
  }
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
