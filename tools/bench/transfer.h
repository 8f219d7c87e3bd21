// quarry-bench transfer: how fast one operation goes, and how that compares with what
// plain sockets reach in the same minutes.
#ifndef QUARRY_TOOLS_BENCH_TRANSFER_H_
#define QUARRY_TOOLS_BENCH_TRANSFER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/server_process.h"

namespace quarry::bench {

enum class TransferOp : uint8_t { kPut, kGet, kFetch, kMatch };

struct TransferOptions {
  ServerOptions server;
  TransferOp op = TransferOp::kGet;
  std::string transport = "tcp";
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
  // match
  uint64_t blocks = 1'000'000;  // in the index
  uint64_t match_block_bytes = 4 << 10;
  uint32_t hashes = 512;  // of one match
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
  // Match, when the server's gRPC address is known.
  std::optional<double> index_bytes_per_block;
};

absl::StatusOr<TransferReport> RunTransfer(const TransferOptions& options);

std::string FormatText(const TransferOptions& options, const TransferReport& report);
std::string FormatJson(const TransferOptions& options, const TransferReport& report);

const char* Name(TransferOp op);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_TRANSFER_H_
