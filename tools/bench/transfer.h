// quarry-bench transfer: how fast one operation goes, and how that compares with what
// plain sockets, or direct IO, reach in the same minutes.
#ifndef QUARRY_TOOLS_BENCH_TRANSFER_H_
#define QUARRY_TOOLS_BENCH_TRANSFER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/buffer_pool.h"
#include "tools/bench/server_process.h"

namespace quarry::bench {

enum class TransferOp : uint8_t { kPut, kGet, kFetch, kMatch };
// Where the blocks are: in memory, or on the SSD of a private server that has no room for them
// in memory.
enum class Tier : uint8_t { kDram, kSsd };

struct TransferOptions {
  ServerOptions server;
  TransferOp op = TransferOp::kGet;
  Tier tier = Tier::kDram;
  std::string transport = "tcp";
  std::string ucx_library;           // transport ucx; empty: the system's
  Buffers buffers = Buffers::kHost;  // the clients' memory, one a client
  uint64_t block_bytes = 2 << 20;
  uint64_t segment_bytes = 64 << 10;
  uint32_t batch = 32;                  // blocks of one call
  uint32_t inflight = 2;                // calls under way a client
  uint32_t clients = 2;                 // each with its own sessions, I/O thread and memory
  uint32_t streams = 1;                 // data connections a client
  int64_t duration_ns = 5'000'000'000;  // of Quarry's share
  uint32_t pairs = 5;                   // alternations with the limit
  bool checksum = true;
  bool against_limit = false;
  uint64_t arena_bytes = uint64_t{1} << 30;        // memory of all clients together
  uint64_t working_set_bytes = uint64_t{2} << 30;  // get, fetch: distinct bytes in the server
  uint32_t disk_depth = 8;                         // tier ssd: requests in flight of the limit
  // match
  uint64_t blocks = 1'000'000;  // in the index
  uint64_t match_block_bytes = 4 << 10;
  uint32_t hashes = 512;  // of one match
};

// Tier ssd.
struct SsdReport {
  std::string io_engine;
  double from_ssd = 0;             // get, fetch: share of the bytes that came from the SSD
  double put_gb_per_s = 0;         // put: TransferReport::gb_per_s is what was spilled
  uint64_t unspilled_blocks = 0;   // evicted before they were spilled
  double write_amplification = 0;  // put: since the server's start
  // Limits, medians; the pair's limit is the smaller one. No sockets with put.
  double disk_gb_per_s = 0;
  double sockets_gb_per_s = 0;
  std::string limit_io_engine;
};

struct TransferReport {
  uint64_t bytes = 0;
  double gb_per_s = 0;
  double ops_per_s = 0;
  double p50_us = 0;
  double p99_us = 0;
  uint64_t errors = 0;
  uint64_t wrong_bytes = 0;
  std::string first_error;
  std::optional<double> server_cpu_s_per_gb;

  // With a limit. For match: ratio is the limit's p50 over Quarry's.
  std::optional<double> ratio;  // median over the pairs
  std::vector<double> pair_ratios;
  double limit_gb_per_s = 0;  // median
  double limit_p50_us = 0;    // match; medians
  double limit_p99_us = 0;
  double p99_over_limit = 0;  // match: Quarry's p99 over the limit's, median over the pairs
  int limit_buffer_bytes = 0;
  std::optional<double> iperf3_gb_per_s;
  bool limit_void = false;  // slower than iperf3: says nothing about Quarry
  std::optional<SsdReport> ssd;
  // Match, when the server's gRPC address is known.
  std::optional<double> index_bytes_per_block;
};

absl::StatusOr<TransferReport> RunTransfer(const TransferOptions& options);

std::string FormatText(const TransferOptions& options, const TransferReport& report);
std::string FormatJson(const TransferOptions& options, const TransferReport& report);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_TRANSFER_H_
