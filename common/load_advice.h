// The arithmetic behind LoadAdvice. Pure.
#ifndef QUARRY_COMMON_LOAD_ADVICE_H_
#define QUARRY_COMMON_LOAD_ADVICE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/load_cost.h"
#include "common/match_rule.h"
#include "quarry/block.h"
#include "quarry/load_advice.h"
#include "quarry/model_spec.h"

namespace quarry {

// Where blocks are loaded from.
enum class LoadTier : uint8_t { kDram = 0, kSsd = 1 };
inline constexpr size_t kLoadTiers = 2;

// What a match says is usable of one group's chain.
struct LoadableChain {
  const GroupSpec* group = nullptr;
  uint64_t first_block = 0;             // index in the chain of states[0]
  absl::Span<const BlockState> states;  // covers `usable`
  BlockRange usable;                    // indices in the chain
  uint64_t block_bytes = 0;             // that this engine would load of each block
};

struct LoadQuestion {
  uint64_t local_tokens = 0;
  uint64_t usable_tokens = 0;
  absl::Span<const LoadableChain> chains;
  std::array<LoadPath, kLoadTiers> paths;  // bytes_per_second 0: not known
  double prefill_tokens_per_second = 0;    // 0: not known
};

//   load(B)      = sum over the tiers that hold blocks of B of fixed + bytes / bandwidth
//   recompute(n) = n / prefill rate
//   worth  = the end E at which recompute(E - local) - load(blocks up to E) is greatest, if
//            above 0
//   split  = the end E at which max(recompute(E - local), load(the other blocks)) is least
//
// E is an end that the match rule allows. A model with windows or states is worth loading whole
// or not at all, because where else it could be resumed the match does not say; of a split, its
// windows and states are always loaded, since they lie at the end.
LoadAdvice AdviseLoad(const LoadQuestion& question);

}  // namespace quarry

#endif  // QUARRY_COMMON_LOAD_ADVICE_H_
