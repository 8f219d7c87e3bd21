#include "client/opted_out.h"

#include <memory>
#include <utility>

namespace quarry {
namespace {

MatchResult MissedMatch(absl::Span<const Chain> chains, const MatchOptions& options) {
  MatchResult result;
  result.usable_tokens = options.local_tokens;
  result.first_miss = MissCause::kOptedOut;
  for (const Chain& chain : chains) {
    MatchResult::Chain missed;
    missed.states.assign(chain.hashes.size(), BlockState::kAbsent);
    missed.first_usable = missed.end_usable = chain.first_block;
    result.chains.push_back(std::move(missed));
  }
  if (!chains.empty()) result.first_miss_block = chains[0].first_block;
  return result;
}

TransferResult Alike(size_t items, const ItemResult& result) {
  TransferResult all;
  all.items.assign(items, result);
  return all;
}

TransferResult MissedItems(size_t items) {
  ItemResult missed;
  missed.miss = MissCause::kOptedOut;
  return Alike(items, missed);
}

}  // namespace

Completion OptedOutMatch(absl::Span<const Chain> chains, const MatchOptions& options) {
  Completion done;
  done.match = std::make_shared<MatchResult>(MissedMatch(chains, options));
  return done;
}

Completion OptedOutGet(size_t items) {
  Completion done;
  done.transfer = std::make_shared<TransferResult>(MissedItems(items));
  return done;
}

Completion OptedOutPut(size_t items) {
  ItemResult refused;
  refused.outcome = PutOutcome::kRefused;
  refused.refusal = RefusalReason::kOptedOut;
  Completion done;
  done.transfer = std::make_shared<TransferResult>(Alike(items, refused));
  return done;
}

Completion OptedOutFetch(absl::Span<const Chain> chains, const std::vector<std::vector<SegmentList>>& destinations,
                         const MatchOptions& options) {
  size_t items = 0;
  for (const auto& of_chain : destinations) items += of_chain.size();
  FetchResult result;
  result.match = MissedMatch(chains, options);
  result.transfer = MissedItems(items);
  Completion done;
  done.fetch = std::make_shared<FetchResult>(std::move(result));
  return done;
}

void PushItems(const Completion& done, CompletionQueue::Impl* queue) {
  const TransferResult& result = done.fetch != nullptr ? done.fetch->transfer : *done.transfer;
  for (size_t i = 0; i < result.items.size(); ++i) {
    Completion item;
    item.kind = Completion::Kind::kItem;
    item.operation = done.operation;
    item.user_data = done.user_data;
    item.item = static_cast<uint32_t>(i);
    item.item_result = std::make_shared<const ItemResult>(result.items[i]);
    queue->Push(std::move(item));
  }
}

}  // namespace quarry
