// How ClientImpl begins operations: check, encode, hand to the session.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/chains.h"
#include "client/client_impl.h"
#include "client/disjoint.h"
#include "client/fetch_operation.h"
#include "client/get_operation.h"
#include "client/items.h"
#include "client/lease_access.h"
#include "client/match_operation.h"
#include "client/opted_out.h"
#include "client/put_operation.h"
#include "common/checksum.h"
#include "common/clock.h"

namespace quarry {
namespace {

constexpr uint32_t kMaxPriority = 7;

absl::Status CheckPriority(uint32_t priority) {
  if (priority <= kMaxPriority) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("priority: 0 to ", kMaxPriority, ", got ", priority));
}

std::string DestinationName(size_t chain, size_t block) {
  return absl::StrCat("destinations[", chain, "][", block, "]");
}

// The chains cut to as many hashes as there are destinations.
absl::StatusOr<std::vector<Chain>> CutToDestinations(absl::Span<const Chain> chains,
                                                     const std::vector<std::vector<SegmentList>>& destinations) {
  if (destinations.size() != chains.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("destinations: one list a chain, ", chains.size(), ", got ", destinations.size()));
  }
  std::vector<Chain> cut(chains.begin(), chains.end());
  for (size_t c = 0; c < cut.size(); ++c) {
    const size_t hashes = cut[c].hashes.size();
    const size_t wanted = destinations[c].size();
    if (wanted < 1 || wanted > hashes) {
      return absl::InvalidArgumentError(absl::StrCat("destinations[", c, "]: 1 to ", hashes, ", got ", wanted));
    }
    cut[c].hashes = cut[c].hashes.subspan(0, wanted);
  }
  return cut;
}

absl::Status CheckDestinations(const ItemRules& rules, absl::Span<const Chain> chains,
                               const std::vector<std::vector<SegmentList>>& destinations) {
  std::vector<absl::Span<const Segment>> lists;
  std::vector<std::pair<size_t, size_t>> places;
  for (size_t c = 0; c < chains.size(); ++c) {
    for (size_t k = 0; k < destinations[c].size(); ++k) {
      absl::Status status = CheckDestination(rules, chains[c].group, destinations[c][k], DestinationName(c, k));
      if (!status.ok()) return status;
      lists.push_back(destinations[c][k]);
      places.emplace_back(c, k);
    }
  }
  return CheckDisjoint(lists, [&](size_t i) { return DestinationName(places[i].first, places[i].second); });
}

absl::Status CheckFetchShard(const ModelSpec& spec, absl::Span<const Chain> chains, uint32_t shard) {
  for (const Chain& chain : chains) {
    const uint32_t shards = spec.groups[chain.group].shards;
    if (shard < shards) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("shard: 0 to ", shards - 1, " in group ", chain.group, ", got ", shard));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Frame(const wire::Limits& limits, OperationId id, wire::ClientMessage message) {
  message.request = id;
  std::string framed;
  wire::AppendFramed(message, &framed);
  if (framed.size() <= limits.max_message_bytes) return framed;
  return absl::InvalidArgumentError(absl::StrCat("the request is ", framed.size(), " bytes long; at most ",
                                                 limits.max_message_bytes, " (limits.max_message_bytes)"));
}

std::vector<TransferItem> FetchItems(const Namespace::State& ns, absl::Span<const Chain> chains, uint32_t shard,
                                     std::vector<std::vector<SegmentList>> destinations) {
  std::vector<TransferItem> items;
  for (size_t c = 0; c < chains.size(); ++c) {
    for (size_t k = 0; k < destinations[c].size(); ++k) {
      TransferItem& item = items.emplace_back();
      item.identity_seed = IdentitySeed(ns.id, chains[c].group, shard, chains[c].hashes[k]);
      item.bytes = TotalBytes(destinations[c][k]);
      item.segments = std::move(destinations[c][k]);
    }
  }
  return items;
}

}  // namespace

Operation::Context ClientImpl::MakeContext(Session* session, uint32_t deadline_ms, Queue queue, uint64_t user_data) {
  Operation::Context context;
  context.id = next_request_.fetch_add(1, std::memory_order_relaxed);
  context.user_data = user_data;
  context.deadline_ms = deadline_ms == 0 ? options_.default_deadline_ms : deadline_ms;
  context.deadline_ns = Clock::Real()->NowNs() + context.deadline_ms * kNsPerMs;
  context.queue = std::move(queue);
  context.host = session;
  context.counters = counters_;
  context.load_rates = load_rates_;
  return context;
}

absl::StatusOr<OperationId> ClientImpl::Begin(Session* session, const std::shared_ptr<Operation>& operation,
                                              wire::ClientMessage message) {
  auto framed = Frame(session->limits(), operation->id(), std::move(message));
  if (!framed.ok()) return framed.status();
  if (absl::Status status = session->Begin(operation, *framed); !status.ok()) return status;
  return operation->id();
}

absl::StatusOr<OperationId> ClientImpl::BeginAndRead(Session* session, const std::shared_ptr<ReplyOperation>& operation,
                                                     wire::ClientMessage message) {
  auto framed = Frame(session->limits(), operation->id(), std::move(message));
  if (!framed.ok()) return framed.status();
  if (absl::Status status = session->BeginAndRead(operation, *framed); !status.ok()) return status;
  return operation->id();
}

absl::StatusOr<OperationId> ClientImpl::EndOptedOut(const Namespace& ns, Completion completion, bool item_completions,
                                                    const Queue& queue, uint64_t user_data) {
  if (absl::Status status = CheckNamespace(ns); !status.ok()) return status;
  completion.operation = next_request_.fetch_add(1, std::memory_order_relaxed);
  completion.user_data = user_data;
  if (item_completions) PushItems(completion, queue.get());
  const OperationId id = completion.operation;
  queue->Push(std::move(completion));
  return id;
}

absl::StatusOr<OperationId> ClientImpl::BeginMatch(const Namespace& ns, absl::Span<const Chain> chains,
                                                   const MatchOptions& options, Queue queue, uint64_t user_data,
                                                   Caller caller) {
  if (options.control.no_load) return EndOptedOut(ns, OptedOutMatch(chains, options), false, queue, user_data);
  auto target = TargetOf(ns);
  if (!target.ok()) return target.status();
  Session* session = target->session.get();
  absl::Status status = CheckChains(target->ns->spec, session->limits(), chains);
  if (status.ok()) status = CheckChainStarts(target->ns->spec, options.local_tokens, chains);
  if (!status.ok()) return status;
  auto operation = std::make_shared<MatchOperation>(
      MakeContext(session, options.deadline_ms, std::move(queue), user_data), ShapesOf(chains),
      MatchOperation::Asker{target->ns, options.local_tokens, options.advice_shards});
  wire::ClientMessage message{0, ToWire(target->handle, chains, options)};
  return caller == Caller::kWaits ? BeginAndRead(session, operation, std::move(message))
                                  : Begin(session, operation, std::move(message));
}

absl::StatusOr<OperationId> ClientImpl::BeginGet(const Namespace& ns, std::vector<Item> items,
                                                 const GetOptions& options, Queue queue, uint64_t user_data) {
  if (options.control.no_load) {
    return EndOptedOut(ns, OptedOutGet(items.size()), options.item_completions, queue, user_data);
  }
  auto target = TargetOf(ns);
  if (!target.ok()) return target.status();
  Session* session = target->session.get();
  const auto registered = memory_.Snapshot();
  absl::Status status = CheckGetItems({*target->ns, session->limits(), *registered}, items);
  if (status.ok()) status = CheckPriority(options.control.priority);
  if (!status.ok()) return status;
  auto staged = StagedItems(ns, &items);
  if (!staged.ok()) return staged.status();
  if (*staged != nullptr) {
    (*staged)->get = options;
    (*staged)->item_completions = options.item_completions;
    (*staged)->stream = options.gpu_stream;
    (*staged)->event = options.gpu_event;
    return BeginStaged(*std::move(staged), options.deadline_ms, std::move(queue), user_data);
  }

  auto context = MakeContext(session, options.deadline_ms, std::move(queue), user_data);
  std::string hashes;
  wire::Get get;
  get.handle = target->handle;
  get.runs = BuildGetRuns(target->ns->spec, items, &hashes);
  get.lease = LeaseAccess::Token(options.lease);
  get.deadline_ms = context.deadline_ms;
  get.priority = options.control.priority;
  get.wait_in_flight = options.wait_in_flight;
  get.credit_bytes = options.window_bytes;
  auto operation = std::make_shared<GetOperation>(std::move(context), ToTransferItems(*target->ns, std::move(items)),
                                                  TransferSettings{options_.verify_checksums, options.item_completions},
                                                  options.window_bytes);
  return Begin(session, std::move(operation), {0, std::move(get)});
}

absl::StatusOr<OperationId> ClientImpl::BeginPut(const Namespace& ns, std::vector<Item> items,
                                                 const PutOptions& options, Queue queue, uint64_t user_data) {
  if (options.control.no_store) {
    return EndOptedOut(ns, OptedOutPut(items.size()), options.item_completions, queue, user_data);
  }
  auto target = TargetOf(ns);
  if (!target.ok()) return target.status();
  Session* session = target->session.get();
  const auto registered = memory_.Snapshot();
  absl::Status status = CheckPutItems({*target->ns, session->limits(), *registered}, items);
  if (status.ok()) status = CheckPriority(options.control.priority);
  if (!status.ok()) return status;
  auto staged = StagedItems(ns, &items);
  if (!staged.ok()) return staged.status();
  if (*staged != nullptr) {
    (*staged)->kind = GpuRequest::Kind::kPut;
    (*staged)->put = options;
    (*staged)->item_completions = options.item_completions;
    (*staged)->stream = options.gpu_stream;
    return BeginStaged(*std::move(staged), options.deadline_ms, std::move(queue), user_data);
  }

  auto context = MakeContext(session, options.deadline_ms, std::move(queue), user_data);
  std::string hashes;
  wire::Put put;
  put.handle = target->handle;
  put.runs = BuildPutRuns(items, &hashes);
  put.deadline_ms = context.deadline_ms;
  put.priority = options.control.priority;
  put.retain_ms = options.control.retain_ms;
  put.no_ssd = options.control.no_ssd;
  put.wait_in_flight = options.wait_in_flight;
  auto operation =
      std::make_shared<PutOperation>(std::move(context), ToTransferItems(*target->ns, std::move(items)),
                                     TransferSettings{options_.verify_checksums, options.item_completions});
  return Begin(session, std::move(operation), {0, std::move(put)});
}

absl::StatusOr<OperationId> ClientImpl::BeginFetch(const Namespace& ns, absl::Span<const Chain> chains,
                                                   std::vector<std::vector<SegmentList>> destinations,
                                                   const FetchOptions& options, Queue queue, uint64_t user_data) {
  if (options.match.control.no_load) {
    return EndOptedOut(ns, OptedOutFetch(chains, destinations, options.match), options.item_completions, queue,
                       user_data);
  }
  auto target = TargetOf(ns);
  if (!target.ok()) return target.status();
  Session* session = target->session.get();
  const ModelSpec& spec = target->ns->spec;
  absl::Status status = CheckChains(spec, session->limits(), chains);
  if (status.ok()) status = CheckChainStarts(spec, options.match.local_tokens, chains);
  if (status.ok()) status = CheckFetchShard(spec, chains, options.shard);
  if (status.ok()) status = CheckPriority(options.match.control.priority);
  if (!status.ok()) return status;
  const auto cut = CutToDestinations(chains, destinations);
  if (!cut.ok()) return cut.status();
  const auto registered = memory_.Snapshot();
  status = CheckDestinations({*target->ns, session->limits(), *registered}, *cut, destinations);
  if (!status.ok()) return status;
  auto staged = StagedFetch(ns, *cut, options.shard, &destinations);
  if (!staged.ok()) return staged.status();
  if (*staged != nullptr) {
    (*staged)->fetch = options;
    (*staged)->item_completions = options.item_completions;
    (*staged)->stream = options.gpu_stream;
    (*staged)->event = options.gpu_event;
    return BeginStaged(*std::move(staged), options.match.deadline_ms, std::move(queue), user_data);
  }

  auto context = MakeContext(session, options.match.deadline_ms, std::move(queue), user_data);
  wire::FetchPrefix fetch;
  fetch.match = ToWire(target->handle, *cut, options.match);
  fetch.shards = {options.shard};
  fetch.max_blocks = options.max_blocks;
  fetch.min_blocks = options.min_blocks;
  fetch.deadline_ms = context.deadline_ms;
  fetch.priority = options.match.control.priority;
  auto operation = std::make_shared<FetchOperation>(
      std::move(context), ShapesOf(*cut), FetchItems(*target->ns, *cut, options.shard, std::move(destinations)),
      TransferSettings{options_.verify_checksums, options.item_completions});
  return Begin(session, std::move(operation), {0, std::move(fetch)});
}

void ClientImpl::Cancel(OperationId operation) {
  if (const auto gpu = gpu_transfers(); gpu != nullptr) gpu->Cancel(operation);
  // Without a session, or in a later one, the operation has ended.
  if (auto session = CurrentSession(); session.ok()) (*session)->Cancel(operation);
}

template <typename Body>
absl::Status ClientImpl::Call(Session* session, uint32_t deadline_ms, Body body, CallOperation::Taker take_reply) {
  auto queue = std::make_shared<CompletionQueue::Impl>(CompletionQueue::Impl::Wakeup::kWaitOnly);
  auto operation = std::make_shared<CallOperation>(MakeContext(session, deadline_ms, queue, 0), std::move(take_reply));
  auto id = BeginAndRead(session, operation, {0, std::move(body)});
  if (!id.ok()) return id.status();
  return queue->Next(-1)->status;
}

template absl::Status ClientImpl::Call(Session*, uint32_t, wire::OpenNamespace, CallOperation::Taker);

absl::StatusOr<uint32_t> ClientImpl::RenewLease(Lease* lease, uint32_t lease_ms) {
  auto session = CurrentSession();
  if (!session.ok()) return session.status();
  if (!*lease) return absl::InvalidArgumentError("lease: empty");
  if (lease_ms == 0) return absl::InvalidArgumentError("lease_ms: at least 1");
  uint32_t granted_ms = 0;
  absl::Status status = Call(session->get(), 0, wire::RenewLease{LeaseAccess::Token(*lease), lease_ms},
                             [&granted_ms](const wire::ServerMessage& message) {
                               const auto* reply = std::get_if<wire::LeaseReply>(&message.body);
                               if (reply != nullptr) granted_ms = reply->lease_ms;
                               return reply != nullptr;
                             });
  if (!status.ok()) return status;
  LeaseAccess::SetGranted(lease, granted_ms);
  return granted_ms;
}

absl::Status ClientImpl::ReleaseLease(const Lease& lease) {
  auto session = CurrentSession();
  if (!session.ok()) return session.status();
  if (!lease) return absl::InvalidArgumentError("lease: empty");
  return Call(session->get(), 0, wire::ReleaseLease{LeaseAccess::Token(lease)}, [](const wire::ServerMessage& message) {
    return std::holds_alternative<wire::LeaseReply>(message.body);
  });
}

void ClientImpl::LetGoOf(const Lease& lease) {
  // Without a session it ends by itself.
  if (auto session = CurrentSession(); session.ok() && lease) {
    (*session)->SendAside(
        {next_request_.fetch_add(1, std::memory_order_relaxed), wire::ReleaseLease{LeaseAccess::Token(lease)}});
  }
}

absl::Status ClientImpl::Touch(const Namespace& ns, absl::Span<const Chain> chains) {
  auto target = TargetOf(ns);
  if (!target.ok()) return target.status();
  absl::Status status = CheckChains(target->ns->spec, target->session->limits(), chains);
  if (!status.ok()) return status;
  return Call(target->session.get(), 0, wire::Touch{target->handle, ToWire(chains)},
              [](const wire::ServerMessage& message) { return std::holds_alternative<wire::Ack>(message.body); });
}

}  // namespace quarry
