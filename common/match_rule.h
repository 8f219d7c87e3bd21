// What of a prompt is usable, given which of its blocks are there: one pure function for
// server, client and tests.
#ifndef QUARRY_COMMON_MATCH_RULE_H_
#define QUARRY_COMMON_MATCH_RULE_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "quarry/model_spec.h"

namespace quarry {

// Which blocks of one group's chain are there: present[i] speaks of block first_block + i.
// Blocks beyond are not there; blocks before are the client's own, up to its local hit.
struct GroupPresence {
  const GroupSpec* spec = nullptr;
  uint64_t first_block = 0;
  absl::Span<const uint8_t> present;  // 0 or 1
};

struct BlockRange {
  uint64_t first = 0;
  uint64_t end = 0;  // exclusive; first == end: none
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

struct Usable {
  uint64_t end_tokens = 0;         // local_tokens when nothing is usable
  std::vector<BlockRange> blocks;  // to load, a range of chain indices per group
  friend bool operator==(const Usable&, const Usable&) = default;
};

// The greatest end E > local_tokens that is legal for every group:
//   every group: E is a multiple of tokens_per_block;
//   full:   all blocks that hold tokens [local_tokens, E) are there;
//   window: all blocks that hold tokens [max(local_tokens, E - window_tokens), E) are there;
//   state:  the block that ends at E is there.
// Of a block that the local hit covers in part, all of it is needed. No groups: nothing.
Usable UsablePrefix(uint64_t local_tokens, absl::Span<const GroupPresence> groups);

// The same for the greatest such end whose blocks fit; nothing always does. Asks about some
// of the ends, by bisection: the answer is the greatest if every end below one that fits
// fits too, and else is one that fits.
Usable LongestUsable(uint64_t local_tokens, absl::Span<const GroupPresence> groups,
                     absl::FunctionRef<bool(const Usable&)> fits);

// Blocks of all groups.
uint64_t BlockCount(const Usable& usable);

}  // namespace quarry

#endif  // QUARRY_COMMON_MATCH_RULE_H_
