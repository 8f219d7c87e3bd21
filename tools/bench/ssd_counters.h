// What a server says about its SSD tier on /metrics, as far as the benchmark uses it.
#ifndef QUARRY_TOOLS_BENCH_SSD_COUNTERS_H_
#define QUARRY_TOOLS_BENCH_SSD_COUNTERS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace quarry::bench {

// Of all directories together, since the server's start.
struct SsdCounters {
  uint64_t spilled_bytes = 0;  // committed, headers included; likewise moved
  uint64_t spilled_records = 0;
  uint64_t moved_bytes = 0;
  uint64_t catalog_bytes = 0;  // written by the catalogs, whatever for
  uint64_t device_bytes = 0;   // written to the extents, whatever came of it
  uint64_t loaded_bytes = 0;   // payload
  uint64_t match_hits = 0;
  uint64_t match_ssd_hits = 0;    // of these
  uint64_t evicted_blocks = 0;    // that are in no tier any more
  uint64_t unspilled_blocks = 0;  // of these, before they were on an SSD: over_budget_blocks, and what it was late for
  uint64_t over_budget_blocks = 0;
  uint64_t reclaimed_extents = 0;
  uint64_t size_bytes = 0;  // of all extents
  uint64_t live_bytes = 0;  // in them, headers included; likewise records
  uint64_t live_records = 0;
  std::string io_engine;  // of the first directory

  // Bytes written for each that was spilled: moves, the catalog. 0 when nothing was spilled.
  double write_amplification() const;
  // Bytes of a record, header included, if all are as those spilled; 0 when nothing was.
  uint64_t record_bytes() const { return spilled_records == 0 ? 0 : spilled_bytes / spilled_records; }
};

// What there is of them in a page of the text format; the rest is 0.
SsdCounters ParseSsdCounters(const std::string& page);
absl::StatusOr<SsdCounters> FetchSsdCounters(const std::string& metrics_address);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_SSD_COUNTERS_H_
