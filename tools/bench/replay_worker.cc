#include "tools/bench/replay_worker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "tools/bench/block_content.h"

namespace quarry::bench {
namespace {

constexpr uint64_t kPoolBytes = 64 << 20;  // at least two blocks, though
constexpr uint32_t kLeaseMs = 30'000;

int64_t Now() { return Clock::Real()->NowNs(); }

}  // namespace

absl::StatusOr<std::unique_ptr<ReplayWorker>> ReplayWorker::Create(const ReplayOptions& options, Client* client,
                                                                   const Namespace& ns, uint32_t number) {
  std::unique_ptr<ReplayWorker> worker(new ReplayWorker(options, client, ns));
  const uint64_t pieces = (options.block_bytes + options.segment_bytes - 1) / options.segment_bytes;
  const uint64_t padded = pieces * options.segment_bytes;
  auto pool = BufferPool::Create(std::max(kPoolBytes, padded * 2), options.segment_bytes, number);
  if (!pool.ok()) return pool.status();
  worker->pool_ = *std::move(pool);
  worker->blocks_at_a_time_ = worker->pool_->free_pieces() / pieces;
  auto region = client->RegisterMemory(worker->pool_->base(), worker->pool_->bytes());
  if (!region.ok()) return region.status();
  worker->region_ = *std::move(region);
  return worker;
}

absl::string_view ReplayWorker::HashAt(size_t block) const {
  return absl::string_view(hashes_).substr(block * kHashBytes, kHashBytes);
}

void ReplayWorker::Serve(const TraceRequest& request) {
  hashes_.clear();
  for (uint64_t id : request.blocks) AppendHash(id, 0, &hashes_);
  ++counts_.requests;

  const Chain chain = {.hashes = HashSpan(hashes_, kHashBytes)};
  MatchOptions options;
  options.lease_ms = kLeaseMs;
  const int64_t begin = Now();
  auto result = client_->Match(ns_, {&chain, 1}, options);
  if (!result.ok()) {
    counts_.AddError(absl::StrCat("match: ", result.status().message()));
    return;
  }
  counts_.match.Add(Now() - begin);
  const MatchResult::Chain& matched = result->chains[0];
  const uint64_t run = result->usable_tokens == 0 ? 0 : matched.end_usable;
  CountMatch(request, *result, run);
  const auto first_missing = matched.states.begin() + static_cast<std::ptrdiff_t>(run);
  counts_.ssd_hit_blocks += static_cast<uint64_t>(std::count(matched.states.begin(), first_missing, BlockState::kSsd));
  if (run > 0) GetRun(request, run, *result);

  std::vector<uint64_t> missing;
  for (uint64_t i = run; i < request.blocks.size(); ++i) {
    if (matched.states[i] != BlockState::kDram && matched.states[i] != BlockState::kSsd) missing.push_back(i);
  }
  if (!missing.empty()) PutMissing(request, missing);
  if (!result->lease) return;
  const absl::Status released = client_->ReleaseLease(result->lease);
  if (!released.ok()) counts_.AddError(absl::StrCat("release: ", released.message()));
}

void ReplayWorker::CountMatch(const TraceRequest& request, const MatchResult& result, uint64_t run) {
  counts_.hits.blocks += request.blocks.size();
  counts_.hits.hit_blocks += run;
  counts_.hits.tokens += request.input_tokens;
  counts_.hits.hit_tokens += TokensOf(request, run);
  if (run < request.blocks.size()) ++counts_.first_misses[static_cast<int>(result.first_miss)];
}

void ReplayWorker::GetRun(const TraceRequest& request, uint64_t run, const MatchResult& match) {
  int64_t elapsed = 0;
  int64_t loading = 0;
  for (uint64_t first = 0; first < run; first += blocks_at_a_time_) {
    const int64_t begin = Now();
    loading = GetSome(request, first, std::min(run, first + blocks_at_a_time_), match.lease);
    elapsed += Now() - begin;
  }
  counts_.get.Add(elapsed);
  // Of larger ones the check of what came lies in between.
  if (run <= blocks_at_a_time_ && loading != 0 && match.advice.load_seconds > 0) {
    counts_.estimates.Add(match.advice.load_seconds, static_cast<double>(loading) / 1e9);
  }
}

int64_t ReplayWorker::GetSome(const TraceRequest& request, uint64_t first, uint64_t end, const Lease& lease) {
  std::vector<Item> items(end - first);
  std::vector<SegmentList> destinations(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    destinations[i] = pool_->Take(options_.block_bytes);
    PoisonBlock(destinations[i]);
    items[i].hash = HashAt(first + i);
    items[i].segments = destinations[i];
  }
  GetOptions options;
  options.lease = lease;
  const int64_t begin = Now();
  auto result = client_->Get(ns_, std::move(items), options);
  const int64_t elapsed = result.ok() ? Now() - begin : 0;
  if (!result.ok()) {
    counts_.AddError(absl::StrCat("get: ", result.status().message()));
  } else {
    for (size_t i = 0; i < destinations.size(); ++i) {
      const ItemResult& item = result->items[i];
      if (!item.status.ok()) {
        counts_.AddError(absl::StrCat("get: ", item.status.message()));
      } else if (item.miss != MissCause::kNone) {
        ++counts_.get_misses[static_cast<int>(item.miss)];
      } else {
        counts_.got_bytes += options_.block_bytes;
        counts_.wrong_bytes += WrongBytes(request.blocks[first + i], destinations[i]);
      }
    }
  }
  for (const SegmentList& segments : destinations) pool_->Return(segments);
  return elapsed;
}

void ReplayWorker::PutMissing(const TraceRequest& request, const std::vector<uint64_t>& missing) {
  int64_t elapsed = 0;
  const absl::Span<const uint64_t> all(missing);
  for (size_t first = 0; first < missing.size(); first += blocks_at_a_time_) {
    const int64_t begin = Now();
    PutSome(request, all.subspan(first, blocks_at_a_time_));
    elapsed += Now() - begin;
  }
  counts_.put.Add(elapsed);
}

void ReplayWorker::PutSome(const TraceRequest& request, absl::Span<const uint64_t> blocks) {
  std::vector<Item> items(blocks.size());
  std::vector<SegmentList> sources(blocks.size());
  for (size_t i = 0; i < items.size(); ++i) {
    sources[i] = pool_->Take(options_.block_bytes);
    FillBlock(request.blocks[blocks[i]], sources[i]);
    items[i].hash = HashAt(blocks[i]);
    items[i].segments = sources[i];
    items[i].depth = blocks[i];
    if (blocks[i] > 0) items[i].parent = HashAt(blocks[i] - 1);
  }
  auto result = client_->Put(ns_, std::move(items));
  if (!result.ok()) {
    counts_.AddError(absl::StrCat("put: ", result.status().message()));
  } else {
    for (const ItemResult& item : result->items) {
      if (!item.status.ok()) {
        counts_.AddError(absl::StrCat("put: ", item.status.message()));
      } else if (item.outcome == PutOutcome::kRefused) {
        ++counts_.refusals[static_cast<int>(item.refusal)];
      } else if (item.outcome == PutOutcome::kAlreadyThere) {
        ++counts_.already_there_blocks;
      } else if (item.outcome == PutOutcome::kStored) {
        ++counts_.stored_blocks;
        counts_.put_bytes += options_.block_bytes;
      } else {
        counts_.AddError("put: a block without an outcome");
      }
    }
  }
  for (const SegmentList& segments : sources) pool_->Return(segments);
}

}  // namespace quarry::bench
