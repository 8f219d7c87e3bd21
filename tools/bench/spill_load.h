// quarry-bench spill-load: what gets from memory lose to puts that the server has to write to its
// SSD meanwhile.
#ifndef QUARRY_TOOLS_BENCH_SPILL_LOAD_H_
#define QUARRY_TOOLS_BENCH_SPILL_LOAD_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/server_process.h"

namespace quarry::bench {

// Puts, as shares of what direct IO writes.
inline constexpr std::array<double, 5> kSpillShares = {0, 0.25, 0.5, 0.75, 1};
// Of the get rate without puts, with puts at half of what direct IO writes.
inline constexpr size_t kTargetShare = 2;  // of kSpillShares
inline constexpr double kLeastGetsUnderSpill = 0.8;

struct SpillLoadOptions {
  SpillLoadOptions() {
    server.memory_bytes = uint64_t{3} << 30;
    server.ssd_bytes = uint64_t{4} << 30;
  }
  ServerOptions server;  // private ones: with the SSD, and without
  std::string transport = "tcp";
  uint64_t block_bytes = 2 << 20;
  uint64_t segment_bytes = 64 << 10;
  uint32_t batch = 32;                       // blocks of one get
  uint32_t inflight = 2;                     // gets under way a client
  uint32_t clients = 2;                      // that get
  uint32_t put_batch = 8;                    // blocks of one put
  uint64_t hot_bytes = uint64_t{1} << 30;    // distinct, got again and again
  uint64_t arena_bytes = uint64_t{1} << 30;  // memory of the clients that get
  int64_t step_ns = 2'000'000'000;           // of one share, and of direct IO
  uint32_t rounds = 3;                       // of all shares, each with its own direct IO
  uint32_t disk_depth = 8;                   // requests of direct IO in flight
  bool checksum = true;
};

// Gets and puts side by side for a step.
struct SpillStep {
  double get_gb_per_s = 0;
  double put_gb_per_s = 0;
  double spilled_gb_per_s = 0;    // committed
  uint64_t loaded_bytes = 0;      // of the gets' bytes, those that came from the SSD
  uint64_t unspilled_blocks = 0;  // evicted before they were written
  uint64_t errors = 0;
  uint64_t wrong_bytes = 0;
  std::string first_error;
};

// One share of one round, of a server with the SSD and of one without.
struct SpillStepPair {
  SpillStep ssd;
  SpillStep plain;
};
using SpillRound = std::array<SpillStepPair, kSpillShares.size()>;

// Of one share; medians over the rounds, sums of counts.
struct SpillLoadRow {
  SpillStepPair steps;
  double ratio = 0;        // get rate over that without puts
  double plain_ratio = 0;  // the same of the server without an SSD
  double spill_ratio = 0;  // the first over the second: what the spill alone leaves
  std::vector<double> round_ratios;
};

struct SpillLoadReport {
  double disk_gb_per_s = 0;  // median
  std::string limit_io_engine;
  std::string io_engine;
  double write_amplification = 0;
  std::array<SpillLoadRow, kSpillShares.size()> rows;
  uint64_t errors = 0;
  uint64_t wrong_bytes = 0;
  std::string first_error;

  bool within() const { return rows[kTargetShare].ratio >= kLeastGetsUnderSpill; }
};

absl::StatusOr<SpillLoadReport> RunSpillLoad(const SpillLoadOptions& options);
// Medians, sums and ratios; at least one round.
void Summarise(const std::vector<SpillRound>& rounds, SpillLoadReport* report);

std::string FormatText(const SpillLoadOptions& options, const SpillLoadReport& report);
std::string FormatJson(const SpillLoadOptions& options, const SpillLoadReport& report);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_SPILL_LOAD_H_
