// Spans: the runs of a chain that are placed together, and the key that places them.
#ifndef QUARRY_COMMON_PLACEMENT_H_
#define QUARRY_COMMON_PLACEMENT_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/match_rule.h"

namespace quarry {

inline constexpr uint32_t kPlacementSlots = 65536;

// Spans start at tokens 0, 512, 4096, 32768, ... (x8). The span that holds a block is the
// one that holds its first token; a span's first block is the first that starts in it.
// Returns the chain indices of the span that holds `block`; end is where the next starts.
BlockRange SpanOf(uint64_t block, uint32_t tokens_per_block);

// The placement slot of a span, from the hash of its first block (for stores without
// chain order: of a block, from its own hash). XXH3-64 of namespace id and hash, modulo
// kPlacementSlots.
uint32_t PlacementSlot(absl::string_view namespace_id, absl::string_view hash);

}  // namespace quarry

#endif  // QUARRY_COMMON_PLACEMENT_H_
