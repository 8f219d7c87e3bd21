// Chains as a match, fetch or touch names them: checked, encoded, and answered.
#ifndef QUARRY_CLIENT_CHAINS_H_
#define QUARRY_CLIENT_CHAINS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/session/messages.h"
#include "quarry/client.h"

namespace quarry {

// InvalidArgument names the field and the bound, e.g. "chains[1].group: ...".
absl::Status CheckChains(const ModelSpec& spec, const wire::Limits& limits, absl::Span<const Chain> chains);
// A match's own rule: chains of full attention begin where the local hit ends, or before.
absl::Status CheckChainStarts(const ModelSpec& spec, uint64_t local_tokens, absl::Span<const Chain> chains);

std::vector<wire::ChainPart> ToWire(absl::Span<const Chain> chains);
wire::Match ToWire(uint32_t handle, absl::Span<const Chain> chains, const MatchOptions& options);

// What remains of a chain once its hashes have been sent.
struct ChainShape {
  uint32_t group = 0;
  uint64_t first_block = 0;
  size_t hashes = 0;
};
std::vector<ChainShape> ShapesOf(absl::Span<const Chain> chains);

// False when the reply does not fit what was asked.
bool FromWire(const wire::MatchReply& reply, absl::Span<const ChainShape> asked, MatchResult* result);

}  // namespace quarry

#endif  // QUARRY_CLIENT_CHAINS_H_
