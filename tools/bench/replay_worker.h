// Serves one request of a trace after the other; several run side by side.
#ifndef QUARRY_TOOLS_BENCH_REPLAY_WORKER_H_
#define QUARRY_TOOLS_BENCH_REPLAY_WORKER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "quarry/client.h"
#include "tools/bench/buffer_pool.h"
#include "tools/bench/replay.h"
#include "tools/bench/trace.h"

namespace quarry::bench {

class ReplayWorker {
 public:
  // `client` outlives the worker and may be shared.
  static absl::StatusOr<std::unique_ptr<ReplayWorker>> Create(const ReplayOptions& options, Client* client,
                                                              const Namespace& ns, uint32_t number);

  void Serve(const TraceRequest& request);
  ReplayCounts& counts() { return counts_; }

 private:
  ReplayWorker(const ReplayOptions& options, Client* client, const Namespace& ns)
      : options_(options), client_(client), ns_(ns) {}

  absl::string_view HashAt(size_t block) const;
  // The first `run` blocks, some at a time.
  void GetRun(const TraceRequest& request, uint64_t run, const MatchResult& match);
  // What the get itself took, in nanoseconds; 0 when it failed.
  int64_t GetSome(const TraceRequest& request, uint64_t first, uint64_t end, const Lease& lease);
  // The blocks with these indices, some at a time.
  void PutMissing(const TraceRequest& request, const std::vector<uint64_t>& missing);
  void PutSome(const TraceRequest& request, absl::Span<const uint64_t> blocks);
  void CountMatch(const TraceRequest& request, const MatchResult& result, uint64_t run);

  const ReplayOptions& options_;
  Client* const client_;
  const Namespace ns_;
  std::unique_ptr<BufferPool> pool_;
  MemoryRegion region_;
  uint64_t blocks_at_a_time_ = 0;
  std::string hashes_;
  ReplayCounts counts_;
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_REPLAY_WORKER_H_
