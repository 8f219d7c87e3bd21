// The session's match and fetch, and the checks of what gets and puts ask for.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/session/session.h"

namespace quarry::server {
namespace {

std::vector<ChainQuery> QueriesOf(const wire::Match& message, const Namespace& ns) {
  std::vector<ChainQuery> chains;
  chains.reserve(message.chains.size());
  for (const wire::ChainPart& chain : message.chains) {
    chains.push_back({chain.group, chain.first_block, HashSpan(chain.hashes, ns.spec.hash_bytes)});
  }
  return chains;
}

wire::MatchReply ReplyOf(const MatchResult& result) {
  wire::MatchReply reply;
  reply.usable_tokens = result.usable_tokens;
  reply.chains.reserve(result.chains.size());
  for (const ChainMatch& chain : result.chains)
    reply.chains.push_back({chain.states, chain.usable.first, chain.usable.end});
  reply.first_miss = result.first_miss;
  reply.first_miss_chain = result.first_miss_chain;
  reply.first_miss_block = result.first_miss_block;
  reply.lease = result.lease;
  reply.lease_ms = result.lease_ms;
  reply.lease_limit = result.lease_limit;
  return reply;
}

uint64_t UsableBlocks(const MatchResult& match) {
  uint64_t blocks = 0;
  for (const ChainMatch& chain : match.chains) blocks += chain.usable.end - chain.usable.first;
  return blocks;
}

}  // namespace

void Session::Handle(uint64_t request, const wire::Match& message) {
  // The service counts what reaches it; this counts what does not.
  const auto reject = [&](const absl::Status& status) {
    service().metrics().requests[static_cast<int>(Op::kMatch)].fetch_add(1, std::memory_order_relaxed);
    Fail(request, Op::kMatch, status);
  };
  auto ns = NamespaceOf(message.handle);
  if (!ns.ok()) return reject(ns.status());
  if (absl::Status status = service().CheckNotDraining(); !status.ok()) return reject(status);
  const std::vector<ChainQuery> chains = QueriesOf(message, **ns);
  MatchQuery query{message.local_tokens, chains, message.lease_ms, !message.no_touch};
  query.prefetch_shards = message.prefetch_shards;
  auto result = service().Match(**ns, query);
  if (!result.ok()) return Fail(request, result.status());  // counted by the service
  Send(request, ReplyOf(*result));
  // Behind the answer, which goes out at the end of the round.
  loop()->Post([store = &service().store()] { store->Upkeep(); });
}

absl::Status Session::CheckFetch(const Namespace& ns, const wire::FetchPrefix& message) const {
  if (message.shards.empty() || message.shards.size() > kMaxShards) {
    return absl::InvalidArgumentError(absl::StrCat("shards: ", message.shards.size(), ", must be 1 to ", kMaxShards));
  }
  uint64_t items = 0;
  for (const wire::ChainPart& chain : message.match.chains) {
    items += chain.hashes.size() / ns.spec.hash_bytes * message.shards.size();
  }
  if (absl::Status status = CheckItems("chains and shards", items); !status.ok()) return status;
  for (const wire::ChainPart& chain : message.match.chains) {
    for (size_t i = 0; i < message.shards.size(); ++i) {
      absl::Status status = service().CheckShard(ns, absl::StrCat("shards[", i, "]"), chain.group, message.shards[i]);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

void Session::Handle(uint64_t request, const wire::FetchPrefix& message) {
  service().metrics().requests[static_cast<int>(Op::kFetch)].fetch_add(1, std::memory_order_relaxed);
  auto ns = NamespaceOf(message.match.handle);
  if (!ns.ok()) return Fail(request, Op::kFetch, ns.status());
  absl::Status status = CheckNew(message.priority);
  if (status.ok()) status = CheckFetch(**ns, message);
  if (!status.ok()) return Fail(request, Op::kFetch, status);
  StartFetch(request, **ns, message);
}

void Session::StartFetch(uint64_t request, const Namespace& ns, const wire::FetchPrefix& message) {
  const std::vector<ChainQuery> chains = QueriesOf(message.match, ns);
  MatchQuery query{message.match.local_tokens, chains, message.match.lease_ms, !message.match.no_touch};
  if (message.max_blocks != 0) query.max_blocks = message.max_blocks;
  query.min_blocks = message.min_blocks;
  // Between match and read the blocks must stay; once read, a slot stays by itself.
  query.pin = true;
  auto match = service().Match(ns, query);
  if (!match.ok()) return Fail(request, Op::kFetch, match.status());

  auto get = std::make_shared<GetRequest>(shared_from_this(), request, Op::kFetch, &ns,
                                          GetRequest::Options{message.deadline_ms, message.priority, 0, false});
  requests_.emplace(request, get);
  const auto shards = static_cast<uint32_t>(message.shards.size());
  for (size_t c = 0; c < chains.size(); ++c) {
    const ChainQuery& chain = chains[c];
    const BlockRange usable = match->chains[c].usable;
    const bool none = usable.first == usable.end;
    const size_t begin = none ? chain.hashes.size() : usable.first - chain.first_block;
    const size_t end = none ? chain.hashes.size() : usable.end - chain.first_block;
    get->Skip(static_cast<uint32_t>(begin) * shards);
    if (shards == 1) {
      get->Add(chain.group, message.shards[0], chain.hashes.subspan(begin, end - begin), 0, 0);
    } else {
      for (size_t i = begin; i < end; ++i) {
        for (uint32_t shard : message.shards) get->Add(chain.group, shard, chain.hashes.subspan(i, 1), 0, 0);
      }
    }
    get->Skip(static_cast<uint32_t>(chain.hashes.size() - end) * shards);
  }
  get->Hold(std::move(match->pins));
  wire::MatchReply reply = ReplyOf(*match);
  reply.fetched_blocks = UsableBlocks(*match);
  Send(request, std::move(reply));
  Start(get);
}

absl::Status Session::CheckGet(const Namespace& ns, const wire::Get& message) const {
  if (message.runs.empty()) return absl::InvalidArgumentError("runs: at least one");
  uint64_t items = 0;
  for (size_t i = 0; i < message.runs.size(); ++i) {
    const wire::GetRun& run = message.runs[i];
    const std::string field = absl::StrCat("runs[", i, "]");
    absl::Status status = service().CheckHashes(ns, field, run.group, run.hashes);
    if (status.ok()) status = service().CheckShard(ns, field, run.group, run.shard);
    if (!status.ok()) return status;
    const uint64_t shard_bytes = ns.spec.groups[run.group].shard_bytes;
    if (run.offset >= shard_bytes || run.bytes > shard_bytes - run.offset) {
      return absl::InvalidArgumentError(absl::StrCat(field, ": offset ", run.offset, " and bytes ", run.bytes,
                                                     " are not within the shard's ", shard_bytes));
    }
    items += run.hashes.size() / ns.spec.hash_bytes;
  }
  if (absl::Status status = CheckItems("runs", items); !status.ok()) return status;
  if (message.lease.empty()) return absl::OkStatus();
  return service().store().CheckLease(ns, message.lease);
}

absl::Status Session::CheckPut(const Namespace& ns, const wire::Put& message) const {
  if (message.runs.empty()) return absl::InvalidArgumentError("runs: at least one");
  uint64_t items = 0;
  for (size_t i = 0; i < message.runs.size(); ++i) {
    const wire::PutRun& run = message.runs[i];
    const std::string field = absl::StrCat("runs[", i, "]");
    absl::Status status = service().CheckHashes(ns, field, run.group, run.hashes);
    if (status.ok()) status = service().CheckShard(ns, field, run.group, run.shard);
    if (!status.ok()) return status;
    if (!run.parent.empty() && run.parent.size() != ns.spec.hash_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".parent: ", run.parent.size(), " bytes, must be 0 or ", ns.spec.hash_bytes));
    }
    const size_t count = run.hashes.size() / ns.spec.hash_bytes;
    if (run.bytes.size() != 1 && run.bytes.size() != count) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ".bytes: ", run.bytes.size(), " values, must be 1 or ", count));
    }
    for (uint64_t bytes : run.bytes) {
      if (status = service().CheckPayloadBytes(ns, field, run.group, bytes); !status.ok()) return status;
    }
    items += count;
  }
  return CheckItems("runs", items);
}

}  // namespace quarry::server
