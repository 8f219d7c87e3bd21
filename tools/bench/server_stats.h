// What a server says about itself over gRPC, as far as the benchmark uses it.
#ifndef QUARRY_TOOLS_BENCH_SERVER_STATS_H_
#define QUARRY_TOOLS_BENCH_SERVER_STATS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace quarry::bench {

struct ServerStats {
  uint64_t arena_bytes = 0;
  uint64_t blocks = 0;
  uint64_t index_bytes = 0;
  uint64_t evicted_blocks = 0;
  uint64_t slot_bytes = 0;      // of the class with most slots
  uint64_t capacity_slots = 0;  // that the arena has room for if all of it were that class
};

absl::StatusOr<ServerStats> FetchServerStats(const std::string& grpc_address);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_SERVER_STATS_H_
