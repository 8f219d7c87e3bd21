#include "common/load_advice.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace quarry {
namespace {

using TierBytes = std::array<uint64_t, kLoadTiers>;

TierBytes Sum(const TierBytes& a, const TierBytes& b) { return {a[0] + b[0], a[1] + b[1]}; }
TierBytes Difference(const TierBytes& a, const TierBytes& b) { return {a[0] - b[0], a[1] - b[1]}; }

// An end, and what loading up to it takes.
struct End {
  uint64_t tokens = 0;
  TierBytes bytes = {};
};

size_t TierOf(const LoadableChain& chain, uint64_t block) {
  const BlockState state = chain.states[block - chain.first_block];
  return static_cast<size_t>(state == BlockState::kSsd ? LoadTier::kSsd : LoadTier::kDram);
}

TierBytes BytesOf(const LoadableChain& chain, BlockRange blocks) {
  TierBytes bytes = {};
  for (uint64_t b = blocks.first; b < blocks.end; ++b) bytes[TierOf(chain, b)] += chain.block_bytes;
  return bytes;
}

bool IsFull(const LoadableChain& chain) { return chain.group->kind == GroupKind::kFull; }

// From local_tokens to usable_tokens, where the groups of full attention allow an end.
std::vector<End> EndsOf(const LoadQuestion& question) {
  std::vector<const LoadableChain*> full;
  std::vector<uint64_t> next;  // block of each
  uint64_t step = 1;
  for (const LoadableChain& chain : question.chains) {
    if (!IsFull(chain)) continue;
    full.push_back(&chain);
    next.push_back(chain.usable.first);
    step = std::lcm(step, uint64_t{chain.group->tokens_per_block});
  }
  if (full.empty()) step = question.usable_tokens;
  End end{question.local_tokens, {}};
  std::vector<End> ends = {end};
  while (end.tokens < question.usable_tokens) {
    end.tokens = std::min((end.tokens / step + 1) * step, question.usable_tokens);
    for (size_t i = 0; i < full.size(); ++i) {
      const uint64_t until = std::min(end.tokens / full[i]->group->tokens_per_block, full[i]->usable.end);
      if (until <= next[i]) continue;
      end.bytes = Sum(end.bytes, BytesOf(*full[i], {next[i], until}));
      next[i] = until;
    }
    ends.push_back(end);
  }
  return ends;
}

double Seconds(const LoadQuestion& question, const TierBytes& bytes) {
  double seconds = 0;
  for (size_t tier = 0; tier < kLoadTiers; ++tier) {
    if (bytes[tier] != 0) seconds += LoadSeconds(question.paths[tier], bytes[tier]);
  }
  return seconds;
}

bool PathsKnown(const LoadQuestion& question, const TierBytes& bytes) {
  for (size_t tier = 0; tier < kLoadTiers; ++tier) {
    if (bytes[tier] != 0 && !(question.paths[tier].bytes_per_second > 0)) return false;
  }
  return true;
}

}  // namespace

LoadAdvice AdviseLoad(const LoadQuestion& question) {
  LoadAdvice advice;
  advice.worth_tokens = question.usable_tokens;
  advice.split_tokens = question.local_tokens;
  const bool rate_known = question.prefill_tokens_per_second > 0;
  const auto recompute = [&](uint64_t end_tokens) {
    return RecomputeSeconds(end_tokens - question.local_tokens, question.prefill_tokens_per_second);
  };
  if (question.usable_tokens <= question.local_tokens) return advice;
  if (rate_known) advice.recompute_seconds = recompute(question.usable_tokens);

  TierBytes all = {};
  TierBytes full = {};  // of `all`: what windows and states do not need
  for (const LoadableChain& chain : question.chains) {
    const TierBytes bytes = BytesOf(chain, chain.usable);
    all = Sum(all, bytes);
    if (IsFull(chain)) full = Sum(full, bytes);
  }
  if (!PathsKnown(question, all)) return advice;
  advice.load_seconds = Seconds(question, all);
  if (!rate_known) return advice;

  double most_saved = 0;
  double soonest = std::numeric_limits<double>::infinity();
  advice.worth_tokens = question.local_tokens;
  for (const End& end : EndsOf(question)) {
    const bool last = end.tokens == question.usable_tokens;
    if (last || full == all) {
      const double saved = recompute(end.tokens) - Seconds(question, last ? all : end.bytes);
      if (saved > most_saved) {
        most_saved = saved;
        advice.worth_tokens = end.tokens;
      }
    }
    const TierBytes behind = last ? TierBytes{} : Difference(all, end.bytes);
    const double done = std::max(recompute(end.tokens), Seconds(question, behind));
    if (done < soonest) {
      soonest = done;
      advice.split_tokens = end.tokens;
    }
  }
  return advice;
}

}  // namespace quarry
