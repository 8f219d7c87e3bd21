// quarry-bench replay: serves a trace's requests from the cache, as engines would: match,
// get what is there into scattered buffers, check every byte, put what was missing.
#ifndef QUARRY_TOOLS_BENCH_REPLAY_H_
#define QUARRY_TOOLS_BENCH_REPLAY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "quarry/block.h"
#include "tools/bench/latencies.h"
#include "tools/bench/lru_simulation.h"
#include "tools/bench/server_process.h"
#include "tools/bench/ssd_counters.h"

namespace quarry::bench {

struct ReplayOptions {
  ServerOptions server;
  std::string trace;                  // file
  uint64_t requests = 0;              // only the first so many; 0: all
  uint64_t block_bytes = 64 << 10;    // payload of a block of kTraceBlockTokens tokens
  uint64_t segment_bytes = 16 << 10;  // pieces in the engine's memory
  double speed = 0;                   // times the trace's own pace; 0: as fast as it goes
  uint32_t concurrency = 8;           // requests under way
  uint32_t clients = 1;               // that they share
  uint32_t streams = 1;               // data connections a client
  std::string transport = "auto";
  bool checksum = true;
  bool progress = false;  // a bar on standard error
};

// How well MatchResult::advice foretold what gets took.
struct LoadEstimates {
  uint64_t gets = 0;
  uint64_t close = 0;  // within a quarter of what they took
  double estimated_seconds = 0;
  double taken_seconds = 0;

  void Add(double estimated, double taken);
};

// What happened, of one worker or of all together.
struct ReplayCounts {
  uint64_t requests = 0;
  HitCounts hits;
  uint64_t ssd_hit_blocks = 0;  // of hits.hit_blocks, those that the match found on the SSD
  uint64_t got_bytes = 0;
  uint64_t put_bytes = 0;
  uint64_t stored_blocks = 0;
  uint64_t already_there_blocks = 0;
  uint64_t first_misses[kMissCauses] = {};  // what ended a match before the prompt's end
  uint64_t get_misses[kMissCauses] = {};    // of blocks that the match had leased
  uint64_t refusals[kRefusalReasons] = {};
  uint64_t errors = 0;
  uint64_t wrong_bytes = 0;
  std::string first_error;
  LoadEstimates estimates;  // of gets that load all of a match
  Latencies match;
  Latencies get;  // of a request's gets together; likewise put
  Latencies put;
  Latencies late;  // behind the trace's pace, when there is one

  void AddError(const std::string& what);
  void Merge(const ReplayCounts& other);
  uint64_t refused() const;
  uint64_t missed_gets() const;
};

// Of a server with an SSD.
struct ReplaySsd {
  SsdCounters counters;          // at the end; the server was new
  uint64_t payload_bytes = 0;    // of the blocks that were spilled
  uint64_t capacity_blocks = 0;  // that its extents have room for; 0: none was spilled

  // Bytes that were written for each byte of payload that was new to the SSD: headers, what reclaim
  // moved, the catalog.
  double write_amplification() const;
  // Gone from the SSD, as its room was needed.
  uint64_t evicted_blocks() const { return counters.evicted_blocks - counters.unspilled_blocks; }
  // Of the blocks evicted unspilled, those that the SSD was late for.
  uint64_t late_blocks() const;
  // What the extents have beyond what lives in them, as a share of that.
  double over_provisioning() const;
};

struct ReplayReport {
  ReplayCounts counts;
  double seconds = 0;
  HitCounts best;  // of a cache without bound
  // Of the same policy and capacity, one request after the other; when the server's gRPC
  // address is known. With an SSD, of one cache as large as that.
  std::optional<HitCounts> simulated;
  uint64_t capacity_blocks = 0;  // in memory
  uint64_t distinct_blocks = 0;
  std::optional<ReplaySsd> ssd;
};

absl::StatusOr<ReplayReport> RunReplay(const ReplayOptions& options);

std::string FormatText(const ReplayOptions& options, const ReplayReport& report);
std::string FormatJson(const ReplayOptions& options, const ReplayReport& report);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_REPLAY_H_
