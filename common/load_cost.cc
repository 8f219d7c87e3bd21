#include "common/load_cost.h"

#include <algorithm>

namespace quarry {
namespace {

// As At, in the range of a double: the search goes beyond any prompt.
double ApproximateBytes(const PrefixBytes& prefix, uint64_t tokens) {
  double bytes = static_cast<double>(prefix.state_bytes) +
                 static_cast<double>(tokens) * static_cast<double>(prefix.full_token_bytes);
  for (const PrefixBytes::Window& window : prefix.windows) {
    bytes += static_cast<double>(std::min(tokens, window.tokens)) * static_cast<double>(window.token_bytes);
  }
  return bytes;
}

}  // namespace

uint64_t PrefixBytes::At(uint64_t tokens) const {
  uint64_t bytes = state_bytes + tokens * full_token_bytes;
  for (const Window& window : windows) bytes += std::min(tokens, window.tokens) * window.token_bytes;
  return bytes;
}

double LoadSeconds(const LoadPath& path, uint64_t bytes) {
  return path.fixed_seconds + static_cast<double>(bytes) / path.bytes_per_second;
}

double RecomputeSeconds(uint64_t tokens, double tokens_per_second) {
  return static_cast<double>(tokens) / tokens_per_second;
}

double PrefillTokensPerSecond(double parameters, double flop_per_second) {
  constexpr double kFlopPerWeight = 2;
  return flop_per_second / (kFlopPerWeight * parameters);
}

double BytesPerSecond(double iops, uint64_t io_bytes) { return iops * static_cast<double>(io_bytes); }

std::optional<uint64_t> BreakEvenTokens(const PrefixBytes& bytes, const LoadPath& path, double tokens_per_second) {
  // Beyond the windows every token costs the same; equal or more means that it never pays.
  if (static_cast<double>(bytes.full_token_bytes) * tokens_per_second >= path.bytes_per_second) return std::nullopt;
  const auto loading_wins = [&](uint64_t tokens) {
    return path.fixed_seconds + ApproximateBytes(bytes, tokens) / path.bytes_per_second <
           RecomputeSeconds(tokens, tokens_per_second);
  };
  if (!loading_wins(kMostBreakEvenTokens)) return std::nullopt;
  uint64_t loses = 0;
  uint64_t wins = kMostBreakEvenTokens;
  while (wins - loses > 1) {
    const uint64_t middle = loses + (wins - loses) / 2;
    (loading_wins(middle) ? wins : loses) = middle;
  }
  return wins;
}

}  // namespace quarry
