#include "common/match_rule.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace quarry {
namespace {

using Wide = unsigned __int128;

constexpr uint64_t kMaxTokens = std::numeric_limits<uint64_t>::max();

// The blocks that a group needs for the end `end_tokens`, a multiple of its block size.
BlockRange Needed(const GroupSpec& spec, uint64_t local_tokens, uint64_t end_tokens) {
  const uint64_t end = end_tokens / spec.tokens_per_block;
  if (spec.kind == GroupKind::kState) return {end - 1, end};
  uint64_t from = local_tokens;
  if (spec.kind == GroupKind::kWindow && end_tokens > spec.window_tokens) {
    from = std::max(from, end_tokens - spec.window_tokens);
  }
  return {from / spec.tokens_per_block, end};
}

// Looks for missing blocks of one group, for ends that only ever decrease, so that each
// block is looked at once.
class Scanner {
 public:
  explicit Scanner(const GroupPresence& group) : group_(group) {}

  // The last block of `needed` that is not there.
  std::optional<uint64_t> LastMissing(BlockRange needed) {
    there_from_ = std::min(there_from_, needed.end);
    while (there_from_ > needed.first) {
      if (!IsThere(there_from_ - 1)) return there_from_ - 1;
      --there_from_;
    }
    return std::nullopt;
  }

 private:
  bool IsThere(uint64_t block) const {
    return block >= group_.first_block && block - group_.first_block < group_.present.size() &&
           group_.present[block - group_.first_block] != 0;
  }

  const GroupPresence& group_;
  uint64_t there_from_ = kMaxTokens;  // blocks from here to the last needed end are there
};

// No end beyond the last block of any chain can be legal.
uint64_t UpperBound(absl::Span<const GroupPresence> groups) {
  Wide bound = kMaxTokens;
  for (const GroupPresence& group : groups) {
    bound = std::min(bound, (Wide{group.first_block} + group.present.size()) * group.spec->tokens_per_block);
  }
  return static_cast<uint64_t>(bound);
}

// Every legal end is a multiple of this; 0 when it is beyond `bound`.
uint64_t CommonStep(absl::Span<const GroupPresence> groups, uint64_t bound) {
  Wide step = 1;
  for (const GroupPresence& group : groups) {
    const uint64_t tokens = group.spec->tokens_per_block;
    step *= tokens / std::gcd(static_cast<uint64_t>(step), tokens);
    if (step > bound) return 0;
  }
  return static_cast<uint64_t>(step);
}

using Groups = absl::InlinedVector<GroupPresence, 4>;

// Without the blocks that end beyond `max_tokens`, so that no end beyond is legal.
Groups UpTo(uint64_t max_tokens, absl::Span<const GroupPresence> groups) {
  Groups shorter(groups.begin(), groups.end());
  for (GroupPresence& group : shorter) {
    const uint64_t blocks = max_tokens / group.spec->tokens_per_block;
    const uint64_t kept = blocks - std::min(blocks, group.first_block);
    group.present = group.present.first(std::min<uint64_t>(kept, group.present.size()));
  }
  return shorter;
}

}  // namespace

Usable UsablePrefix(uint64_t local_tokens, absl::Span<const GroupPresence> groups) {
  Usable usable{local_tokens, std::vector<BlockRange>(groups.size())};
  const uint64_t bound = groups.empty() ? 0 : UpperBound(groups);
  const uint64_t step = CommonStep(groups, bound);
  if (step == 0) return usable;

  absl::InlinedVector<Scanner, 4> scanners(groups.begin(), groups.end());
  uint64_t end = bound - bound % step;
  size_t satisfied = 0;  // groups in a row that are content with `end`
  for (size_t i = 0; end > local_tokens && satisfied < groups.size(); i = (i + 1) % groups.size()) {
    const std::optional<uint64_t> missing = scanners[i].LastMissing(Needed(*groups[i].spec, local_tokens, end));
    if (!missing) {
      ++satisfied;
      continue;
    }
    // Whatever its kind, the group needs that block for every end between it and `end`;
    // before the chain's first block there is nothing.
    if (*missing < groups[i].first_block) return usable;
    end = *missing * groups[i].spec->tokens_per_block;
    end -= end % step;
    satisfied = 0;
  }
  if (end <= local_tokens) return usable;

  usable.end_tokens = end;
  for (size_t i = 0; i < groups.size(); ++i) usable.blocks[i] = Needed(*groups[i].spec, local_tokens, end);
  return usable;
}

Usable LongestUsable(uint64_t local_tokens, absl::Span<const GroupPresence> groups,
                     absl::FunctionRef<bool(const Usable&)> fits) {
  Usable longest = UsablePrefix(local_tokens, groups);
  if (longest.end_tokens == local_tokens || fits(longest)) return longest;
  Usable best{local_tokens, std::vector<BlockRange>(groups.size())};
  uint64_t low = local_tokens;  // of the legal ends up to here, best's is the last
  uint64_t high = longest.end_tokens - 1;
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    Usable candidate = UsablePrefix(local_tokens, UpTo(middle, groups));
    if (candidate.end_tokens <= low) {
      low = middle;
    } else if (fits(candidate)) {
      low = middle;
      best = std::move(candidate);
    } else {
      high = candidate.end_tokens - 1;
    }
  }
  return best;
}

uint64_t BlockCount(const Usable& usable) {
  uint64_t blocks = 0;
  for (const BlockRange& range : usable.blocks) blocks += range.end - range.first;
  return blocks;
}

}  // namespace quarry
