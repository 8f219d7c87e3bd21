#include "client/cuda/staged_operation.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "client/chains.h"
#include "client/fetch_operation.h"
#include "common/match_rule.h"

namespace quarry {
namespace {

bool IsThere(BlockState state) { return state == BlockState::kDram || state == BlockState::kSsd; }

// As the node bounds a fetch: of what may be used, as much as is not more than max_blocks, and
// nothing below min_blocks.
void BoundFetch(const GpuRequest& request, MatchResult* match) {
  const FetchOptions& options = request.fetch;
  const ModelSpec& spec = request.ns.spec();
  uint64_t blocks = 0;
  for (const MatchResult::Chain& chain : match->chains) blocks += chain.end_usable - chain.first_usable;
  Usable usable{match->usable_tokens, {}};
  for (const MatchResult::Chain& chain : match->chains) usable.blocks.push_back({chain.first_usable, chain.end_usable});
  if (options.max_blocks != 0 && blocks > options.max_blocks) {
    std::vector<std::vector<uint8_t>> present(match->chains.size());
    std::vector<GroupPresence> groups;
    for (size_t c = 0; c < match->chains.size(); ++c) {
      for (const BlockState state : match->chains[c].states) present[c].push_back(IsThere(state) ? 1 : 0);
      groups.push_back({&spec.groups[request.chains[c].group], request.chains[c].first_block, present[c]});
    }
    const uint64_t most_tokens = match->usable_tokens;
    usable = LongestUsable(options.match.local_tokens, groups, [&](const Usable& candidate) {
      return BlockCount(candidate) <= options.max_blocks && candidate.end_tokens <= most_tokens;
    });
    blocks = BlockCount(usable);
  }
  const bool nothing = blocks == 0 || blocks < options.min_blocks;
  match->usable_tokens = nothing ? options.match.local_tokens : usable.end_tokens;
  for (size_t c = 0; c < match->chains.size(); ++c) {
    match->chains[c].first_usable = nothing ? 0 : usable.blocks[c].first;
    match->chains[c].end_usable = nothing ? 0 : usable.blocks[c].end;
  }
}

}  // namespace

StagedOperation::StagedOperation(std::unique_ptr<GpuRequest> request, std::shared_ptr<AtomicCounters> counters)
    : request_(std::move(request)),
      counters_(std::move(counters)),
      ended_(request_->items.size(), 0),
      open_items_(request_->items.size()) {
  for (const Item& item : request_->items) item_bytes_.push_back(TotalBytes(item.segments));
  result_->items.resize(request_->items.size());
  if (request_->kind != GpuRequest::Kind::kFetch) {
    order.resize(request_->items.size());
    std::iota(order.begin(), order.end(), 0);
  }
  counters_->operations.fetch_add(1, std::memory_order_relaxed);
}

void StagedOperation::TakeMatch(const MatchResult& match) {
  fetch_ = std::make_shared<FetchResult>();
  fetch_->match = match;
  fetch_->match.advice = {};
  BoundFetch(*request_, &fetch_->match);
  ForEachDestination(ShapesOf(request_->chains), fetch_->match, [this](uint32_t item, const ItemResult* left_out) {
    if (left_out == nullptr) {
      order.push_back(item);
    } else {
      EndItem(item, *left_out);
    }
    return true;
  });
  fetch_->fetched_blocks = order.size();
  lease = fetch_->match.lease;
  // As the node does it: what is not usable is not leased.
  let_go_of_lease = request_->fetch.match.lease_ms == 0 || order.empty();
  if (let_go_of_lease) fetch_->match.lease = Lease();
}

Completion StagedOperation::MakeCompletion(Completion::Kind kind) const {
  Completion completion;
  completion.kind = kind;
  completion.operation = request_->id;
  completion.user_data = request_->user_data;
  return completion;
}

void StagedOperation::EndItem(uint32_t item, ItemResult result, size_t bytes) {
  if (done_ || ended_[item] != 0) return;
  ended_[item] = 1;
  --open_items_;
  result_->bytes += bytes;
  result_->items[item] = std::move(result);
  if (!request_->item_completions) return;
  Completion completion = MakeCompletion(Completion::Kind::kItem);
  completion.item = item;
  completion.status = result_->items[item].status;
  completion.item_result = std::make_shared<const ItemResult>(result_->items[item]);
  request_->queue->Push(std::move(completion));
}

void StagedOperation::Finish(const absl::Status& status, bool held) {
  done_ = true;
  held_ = held;
  for (size_t i = 0; i < ended_.size(); ++i) {
    if (ended_[i] == 0) result_->items[i].status = status;
  }
  Completion done = MakeCompletion(Completion::Kind::kDone);
  done.status = status;
  done.held = held;
  if (request_->kind == GpuRequest::Kind::kFetch) {
    if (fetch_ == nullptr) fetch_ = std::make_shared<FetchResult>();
    fetch_->transfer = std::move(*result_);
    done.fetch = std::move(fetch_);
  } else {
    done.transfer = std::move(result_);
  }
  if (held) counters_->held.fetch_add(1, std::memory_order_relaxed);
  counters_->operations.fetch_sub(1, std::memory_order_relaxed);
  request_->queue->Push(std::move(done));
}

void StagedOperation::Release() {
  held_ = false;
  counters_->held.fetch_sub(1, std::memory_order_relaxed);
  request_->queue->Push(MakeCompletion(Completion::Kind::kReleased));
}

}  // namespace quarry
