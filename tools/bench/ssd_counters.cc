#include "tools/bench/ssd_counters.h"

#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tools/bench/http_get.h"

namespace quarry::bench {
namespace {

constexpr char kEngineLabel[] = "engine=\"";
constexpr char kOpLabel[] = "op=\"";
constexpr char kIoBytes[] = "quarry_ssd_io_bytes_total";

// The value of that label in a series; empty: it has none.
absl::string_view Label(absl::string_view series, absl::string_view opening) {
  const size_t begin = series.find(opening);
  if (begin == absl::string_view::npos) return "";
  const absl::string_view rest = series.substr(begin + opening.size());
  return rest.substr(0, rest.find('"'));
}

}  // namespace

double SsdCounters::write_amplification() const {
  if (spilled_bytes == 0) return 0;
  return static_cast<double>(spilled_bytes + moved_bytes + catalog_bytes) / static_cast<double>(spilled_bytes);
}

SsdCounters ParseSsdCounters(const std::string& page) {
  SsdCounters counters;
  const std::map<absl::string_view, uint64_t*> wanted = {
      {"quarry_ssd_spilled_bytes_total", &counters.spilled_bytes},
      {"quarry_ssd_spilled_records_total", &counters.spilled_records},
      {"quarry_ssd_moved_bytes_total", &counters.moved_bytes},
      {"quarry_ssd_catalog_written_bytes_total", &counters.catalog_bytes},
      {"quarry_ssd_loaded_bytes_total", &counters.loaded_bytes},
      {"quarry_match_hits_total", &counters.match_hits},
      {"quarry_match_ssd_hits_total", &counters.match_ssd_hits},
      {kIoBytes, &counters.device_bytes},
      {"quarry_evicted_blocks_total", &counters.evicted_blocks},
      {"quarry_unspilled_blocks_total", &counters.unspilled_blocks},
      {"quarry_over_budget_blocks_total", &counters.over_budget_blocks},
      {"quarry_ssd_reclaimed_extents_total", &counters.reclaimed_extents},
      {"quarry_ssd_size_bytes", &counters.size_bytes},
      {"quarry_ssd_live_bytes", &counters.live_bytes},
      {"quarry_ssd_live_records", &counters.live_records},
  };
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    // NAME{LABELS} VALUE
    const absl::string_view name = line.substr(0, line.find_first_of("{ "));
    if (name == "quarry_ssd_io_info" && counters.io_engine.empty()) {
      counters.io_engine = std::string(Label(line, kEngineLabel));
    }
    if (name == kIoBytes && Label(line, kOpLabel) != "write") continue;
    const auto counter = wanted.find(name);
    double value;
    if (counter == wanted.end() || !absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) continue;
    *counter->second += static_cast<uint64_t>(value);
  }
  return counters;
}

absl::StatusOr<SsdCounters> FetchSsdCounters(const std::string& metrics_address) {
  auto page = HttpGet(metrics_address, "/metrics");
  if (!page.ok()) return page.status();
  return ParseSsdCounters(*page);
}

}  // namespace quarry::bench
