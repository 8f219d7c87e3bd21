// Load or recompute: when a cached prefix is faster loaded than computed again. Pure
// arithmetic in seconds, bytes and tokens.
#ifndef QUARRY_COMMON_LOAD_COST_H_
#define QUARRY_COMMON_LOAD_COST_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace quarry {

// A path from the cache to the engine: `fixed_seconds` for every load whatever its size,
// and bytes_per_second > 0.
struct LoadPath {
  double fixed_seconds = 0;
  double bytes_per_second = 0;
};

// What must be loaded to resume after n tokens: layers that see the whole prefix grow with
// it, windows up to their length, states not at all. Bytes are those of all layers.
//
//   bytes(n) = state_bytes + n * full_token_bytes + sum of min(n, window) * token_bytes
struct PrefixBytes {
  struct Window {
    uint64_t tokens = 0;
    uint64_t token_bytes = 0;
  };
  uint64_t state_bytes = 0;
  uint64_t full_token_bytes = 0;
  std::vector<Window> windows;

  // Exact below 2^64.
  uint64_t At(uint64_t tokens) const;
};

// fixed + bytes / bandwidth: a lower bound, since a transfer of M bytes over B bytes a
// second takes at least M / B.
double LoadSeconds(const LoadPath& path, uint64_t bytes);

// tokens / rate. The quadratic part of attention is not in it: for prompts long enough to
// make it count, computing takes longer than this.
double RecomputeSeconds(uint64_t tokens, double tokens_per_second);

// Tokens a second of a prefill at `flop_per_second`, by 2 x parameters FLOP a token: a
// multiplication and an addition for every weight (Kaplan et al. 2020, "Scaling Laws for
// Neural Language Models", section 2.1). `parameters`: those that one token passes through,
// so the active ones of a mixture of experts.
double PrefillTokensPerSecond(double parameters, double flop_per_second);

// A path of small reads: `iops` a second of `io_bytes` each.
double BytesPerSecond(double iops, uint64_t io_bytes);

// The least number of tokens from which on loading takes less time than computing; nullopt:
// there is none up to kMostBreakEvenTokens, because the path is too slow.
//
// From which on: recompute(n) - load(n) is convex, as load is concave, and not above 0 at
// n = 0; so once above 0 it stays there.
inline constexpr uint64_t kMostBreakEvenTokens = 1ull << 40;
std::optional<uint64_t> BreakEvenTokens(const PrefixBytes& bytes, const LoadPath& path, double tokens_per_second);

}  // namespace quarry

#endif  // QUARRY_COMMON_LOAD_COST_H_
