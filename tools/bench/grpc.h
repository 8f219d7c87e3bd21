// quarry-bench grpc: what gRPC costs beside the session protocol, and what those who look on
// cost the sessions.
#ifndef QUARRY_TOOLS_BENCH_GRPC_H_
#define QUARRY_TOOLS_BENCH_GRPC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/server_process.h"

namespace quarry::bench {

struct GrpcOptions {
  ServerOptions server;
  // Which parts.
  bool match = true;
  bool get = true;
  bool put = true;
  bool observers = true;

  int64_t duration_ns = 10'000'000'000;  // of each part, its other side included
  uint32_t pairs = 5;                    // alternations of a part's two sides
  // match
  uint64_t blocks = 10'000;
  uint32_t hashes = 512;
  bool lease = false;
  // get, put; observers: of the sessions' gets
  uint64_t block_bytes = 2 << 20;
  uint32_t batch = 32;
  uint32_t clients = 2;
  uint64_t arena_bytes = uint64_t{512} << 20;      // memory of all clients of a side together
  uint64_t working_set_bytes = uint64_t{1} << 30;  // distinct bytes that are got
  // observers
  uint32_t watchers = 10;  // each reads one event a second
  bool scrape = true;      // /metrics and Stats, once a second
  uint32_t events_per_s = 100;
};

// What holds when all is well, to be read beside the figures.
inline constexpr double kMostMatchTimesEmpty = 2;
inline constexpr double kMostMatchBeyondUs = 150;
inline constexpr double kLeastBytesRatio = 0.5;
inline constexpr double kMostObserverLoss = 0.02;

struct GrpcReport {
  struct Match {
    double p50_us = 0;
    double p99_us = 0;
    double empty_p50_us = 0;
    double empty_p99_us = 0;
    bool within() const { return p99_us <= kMostMatchTimesEmpty * empty_p99_us + kMostMatchBeyondUs; }
  };
  struct Bytes {
    double grpc_gb_per_s = 0;
    double session_gb_per_s = 0;
    double ratio = 0;  // median over the pairs
    std::vector<double> pair_ratios;
    std::optional<double> server_cpu_s_per_gb;
    bool within() const { return ratio >= kLeastBytesRatio; }
  };
  struct Observers {
    double gb_per_s = 0;  // without them
    double loss = 0;      // median over the pairs; below 0: gain
    std::vector<double> pair_losses;
    uint64_t scrapes = 0;
    uint64_t stats = 0;
    uint64_t events = 0;  // that the watchers took
    bool within() const { return loss < kMostObserverLoss; }
  };
  std::optional<Match> match;
  std::optional<Bytes> get;
  std::optional<Bytes> put;
  std::optional<Observers> observers;
  uint64_t errors = 0;
  uint64_t wrong_bytes = 0;
  std::string first_error;
  double load = 0;  // the machine's, over the last minute, at the end
};

absl::StatusOr<GrpcReport> RunGrpc(const GrpcOptions& options);

std::string FormatText(const GrpcOptions& options, const GrpcReport& report);
std::string FormatJson(const GrpcOptions& options, const GrpcReport& report);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_GRPC_H_
