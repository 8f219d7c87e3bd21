// The trace format that KV cache work shares: one JSON object a line,
//   {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [..]}
// with one id for each block of 512 tokens of the prompt, equal ids for equal prefixes.
#ifndef QUARRY_TOOLS_BENCH_TRACE_H_
#define QUARRY_TOOLS_BENCH_TRACE_H_

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quarry::bench {

inline constexpr uint32_t kTraceBlockTokens = 512;
inline constexpr size_t kMaxTraceRequests = 10'000'000;
inline constexpr size_t kMaxTraceBlocks = 1 << 20;  // of one request

struct TraceRequest {
  uint64_t timestamp_ms = 0;
  uint64_t input_tokens = 0;
  std::vector<uint64_t> blocks;  // ids; never empty
};

// InvalidArgument names the line and what is wrong with it. `max_requests` 0: all. Blank
// lines are passed over.
absl::StatusOr<std::vector<TraceRequest>> ParseTrace(std::istream& in, size_t max_requests = 0);
absl::StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path, size_t max_requests = 0);

// Tokens of the prompt that its first `blocks` blocks hold; the last block may be partial.
uint64_t TokensOf(const TraceRequest& request, uint64_t blocks);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_TRACE_H_
