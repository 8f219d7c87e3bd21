// Load or recompute, answered for one match: how much of what is cached is worth loading, and
// where to split the work when the engine can do both at once. Acting on it is the engine's
// choice.
#ifndef QUARRY_LOAD_ADVICE_H_
#define QUARRY_LOAD_ADVICE_H_

#include <cstdint>

namespace quarry {

// Tokens are positions in the prompt, as MatchResult::usable_tokens: from local_tokens, where
// nothing is to be loaded, to usable_tokens, where everything is.
struct LoadAdvice {
  // Of all that is usable: what loading it is expected to take, and what computing it would.
  // 0: not known (nothing was loaded so far, or no prefill rate was told), or nothing to do.
  double load_seconds = 0;
  double recompute_seconds = 0;
  // Load up to here: the end that saves the most time, local_tokens when loading saves none.
  uint64_t worth_tokens = 0;
  // With both at once, done soonest: compute what lies before, load what lies behind.
  uint64_t split_tokens = 0;
  // Where a time is not known, it is said that everything is worth loading.
};

}  // namespace quarry

#endif  // QUARRY_LOAD_ADVICE_H_
