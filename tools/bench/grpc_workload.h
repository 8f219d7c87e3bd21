// The gRPC sides of quarry-bench grpc.
#ifndef QUARRY_TOOLS_BENCH_GRPC_WORKLOAD_H_
#define QUARRY_TOOLS_BENCH_GRPC_WORKLOAD_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/bench/grpc.h"
#include "tools/bench/workload.h"

namespace quarry::bench {

// Gets or puts as streams: each client a connection, and one call after the other on it. A get
// copies payload to its place and checks the sums that come with it, as a client does; a put
// sums its payload first. The blocks of a get, ids below `blocks`, are in the server's
// namespace `ns`.
absl::StatusOr<std::unique_ptr<Workload>> MakeGrpcBytes(const GrpcOptions& options, const std::string& server, bool put,
                                                        const std::string& ns, uint64_t blocks);

struct MatchSlices {
  Slice match;
  Slice empty;
};

// Matches of present blocks, each followed by an empty call on the same connection.
class GrpcMatch {
 public:
  GrpcMatch(const GrpcOptions& options, const std::string& server, std::string ns);
  ~GrpcMatch();
  MatchSlices Run(int64_t duration_ns);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_GRPC_WORKLOAD_H_
