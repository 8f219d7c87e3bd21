// Operations are cut into parts, and parts are host operations on the ring.
#include <algorithm>
#include <limits>
#include <utility>

#include "client/cuda/staging.h"
#include "common/clock.h"

namespace quarry {
namespace {

size_t SlotBytes(size_t bytes) {
  return (bytes + cuda::SlotSpace::kAlignment - 1) / cuda::SlotSpace::kAlignment * cuda::SlotSpace::kAlignment;
}

// Rounded up: the host operation must not give up before its whole does.
uint32_t LeftMs(const StagedOperation& operation) {
  const int64_t left_ns = operation.request().deadline_ns - Clock::Real()->NowNs();
  const int64_t left_ms = std::max<int64_t>((left_ns + kNsPerMs - 1) / kNsPerMs, 1);
  return static_cast<uint32_t>(std::min<int64_t>(left_ms, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

void Staging::Start(const OperationPtr& operation) {
  operations_.emplace(operation->id(), operation);
  deadlines_.emplace(operation->request().deadline_ns, operation->id());
  if (operation->request().kind == GpuRequest::Kind::kFetch) {
    StartMatch(operation);
  } else {
    waiting_.push_back(operation);
  }
}

void Staging::StartMatch(const OperationPtr& operation) {
  MatchOptions options = operation->request().fetch.match;
  options.deadline_ms = LeftMs(*operation);
  // What the match finds stays until it has been got.
  if (options.lease_ms == 0) options.lease_ms = options.deadline_ms;
  const uint64_t number = ++last_number_;
  ++operation->transfers;
  matches_.emplace(number, operation);
  const auto begun = client_->BeginMatch(operation->request().ns, operation->request().chains, options, completions_,
                                         number, ClientImpl::Caller::kGoesOn);
  if (begun.ok()) return;
  matches_.erase(number);
  Finish(operation, begun.status());
}

void Staging::StartParts() {
  while (!waiting_.empty() && parts_.size() < kMaxParts) {
    const OperationPtr operation = waiting_.front();
    if (!operation->done() && operation->next < operation->order.size()) {
      // Nobody passes who waits for room: so the largest item gets its turn, too.
      if (!StartPart(operation)) return;
    }
    waiting_.pop_front();
    if (operation->done() || operation->next == operation->order.size()) continue;
    // One part a turn.
    const uint64_t window = operation->request().get.window_bytes;
    operation->parked = window != 0 && operation->bytes_on_their_way >= window;
    if (!operation->parked) waiting_.push_back(operation);
  }
}

Staging::PartPtr Staging::TakePart(const OperationPtr& operation) {
  const auto& order = operation->order;
  size_t most_bytes = ring_.bytes() / kPartsOfTheRing;
  if (const uint64_t window = operation->request().get.window_bytes; window != 0) {
    most_bytes = std::min<uint64_t>(most_bytes, window - std::min(window, operation->bytes_on_their_way));
  }
  const size_t first_bytes = SlotBytes(operation->item_bytes(order[operation->next]));
  size_t bytes = 0;
  size_t count = 0;
  for (size_t i = operation->next; i < order.size() && count < kMaxPartItems; ++i, ++count) {
    const size_t more = SlotBytes(operation->item_bytes(order[i]));
    if (count > 0 && bytes + more > most_bytes) break;
    bytes += more;
  }
  // A slot of the ring's last bytes need not be as long as rounding makes it.
  auto slot = space_.Take(std::min(bytes, ring_.bytes()));
  if (!slot.has_value() && count > 1) {
    count = 1;
    bytes = first_bytes;
    slot = space_.Take(std::min(bytes, ring_.bytes()));
  }
  if (!slot.has_value()) return nullptr;
  auto part = std::make_shared<Part>();
  part->number = ++last_number_;
  part->operation = operation;
  part->slot = *slot;
  size_t offset = *slot;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t item = order[operation->next++];
    part->items.push_back(item);
    part->offsets.push_back(offset);
    part->bytes += operation->item_bytes(item);
    offset += SlotBytes(operation->item_bytes(item));
  }
  return part;
}

bool Staging::StartPart(const OperationPtr& operation) {
  const PartPtr part = TakePart(operation);
  if (part == nullptr) return false;
  parts_.emplace(part->number, part);
  ++operation->transfers;
  operation->bytes_on_their_way += part->bytes;
  if (!operation->puts()) {
    BeginGet(part);
    return true;
  }
  std::vector<size_t> all(part->items.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  AddCopy(part, std::move(all));
  return true;
}

std::vector<Item> Staging::HostItems(const Part& part) const {
  std::vector<Item> items;
  items.reserve(part.items.size());
  for (size_t i = 0; i < part.items.size(); ++i) {
    Item item = part.operation->request().items[part.items[i]];
    item.segments = {{ring_.base() + part.offsets[i], part.operation->item_bytes(part.items[i]), 0, 1}};
    items.push_back(std::move(item));
  }
  return items;
}

void Staging::BeginGet(const PartPtr& part) {
  const GpuRequest& request = part->operation->request();
  GetOptions options = request.get;
  if (request.kind == GpuRequest::Kind::kFetch) options.control = request.fetch.match.control;
  if (part->operation->lease) options.lease = part->operation->lease;
  options.deadline_ms = LeftMs(*part->operation);
  options.item_completions = true;
  options.window_bytes = 0;
  TakeBegun(part, client_->BeginGet(request.ns, HostItems(*part), options, completions_, part->number));
}

void Staging::BeginPut(const PartPtr& part) {
  PutOptions options = part->operation->request().put;
  options.deadline_ms = LeftMs(*part->operation);
  options.item_completions = true;
  TakeBegun(part,
            client_->BeginPut(part->operation->request().ns, HostItems(*part), options, completions_, part->number));
}

void Staging::TakeBegun(const PartPtr& part, absl::StatusOr<OperationId> begun) {
  if (begun.ok()) {
    part->transfer = *begun;
    part->slot_free = false;
    return;
  }
  Finish(part->operation, begun.status());
  FreeIfOver(part);
}

void Staging::TakeCompletions() {
  while (const auto completion = completions_->TryNext()) OnCompletion(*completion);
}

void Staging::OnCompletion(const Completion& completion) {
  if (const auto match = matches_.extract(completion.user_data); !match.empty()) {
    return OnMatched(match.mapped(), completion);
  }
  const auto found = parts_.find(completion.user_data);
  if (found == parts_.end()) return;
  const PartPtr part = found->second;
  switch (completion.kind) {
    case Completion::Kind::kItem:
      return OnItem(part, completion);
    case Completion::Kind::kDone:
      return OnTransferDone(part, completion);
    case Completion::Kind::kReleased:
      part->slot_free = true;
      return FreeIfOver(part);
  }
}

void Staging::OnMatched(const OperationPtr& operation, const Completion& completion) {
  --operation->transfers;
  if (operation->done()) {
    // Of a match that came too late the lease pins blocks for nobody.
    if (completion.match != nullptr) client_->LetGoOf(completion.match->lease);
    return;
  }
  if (!completion.status.ok()) return Finish(operation, completion.status);
  operation->TakeMatch(*completion.match);
  waiting_.push_back(operation);
  FinishIfComplete(operation);
}

void Staging::OnItem(const PartPtr& part, const Completion& completion) {
  StagedOperation& operation = *part->operation;
  if (operation.done()) return;
  const uint32_t item = part->items[completion.item];
  const ItemResult& result = *completion.item_result;
  if (operation.puts()) {
    const bool stored = result.status.ok() && result.outcome == PutOutcome::kStored;
    return operation.EndItem(item, result, stored ? operation.item_bytes(item) : 0);
  }
  if (!result.status.ok() || result.miss != MissCause::kNone) return operation.EndItem(item, result);
  part->landed.push_back(completion.item);
  landed_parts_.insert(part->number);
}

void Staging::OnTransferDone(const PartPtr& part, const Completion& completion) {
  const OperationPtr operation = part->operation;
  part->transfer_done = true;
  part->slot_free = !completion.held;
  --operation->transfers;
  operation->bytes_on_their_way -= part->bytes;
  if (operation->parked && !operation->done()) {
    operation->parked = false;
    waiting_.push_back(operation);
  }
  if (!completion.status.ok()) Finish(operation, completion.status);
  FreeIfOver(part);
  FinishIfComplete(operation);
}

void Staging::FreeIfOver(const PartPtr& part) {
  const bool wanted = !part->operation->done() && (!part->transfer_done || !part->landed.empty());
  if (wanted || !part->slot_free || part->copies > 0) return;
  if (parts_.erase(part->number) == 0) return;
  landed_parts_.erase(part->number);
  space_.Give(part->slot);
}

void Staging::FinishIfComplete(const OperationPtr& operation) {
  if (operation->done() || !operation->AllEnded() || operation->transfers > 0) return;
  Finish(operation, absl::OkStatus());
}

void Staging::Finish(const OperationPtr& operation, absl::Status status) {
  if (operation->done()) return;
  const GpuRequest& request = operation->request();
  if (request.event != nullptr) {
    const cuda::Outcome recorded =
        GpuOfOperation(*operation).copier->Record(static_cast<CUevent>(request.event), StreamOf(*operation));
    if (status.ok() && !recorded.ok()) status = CudaError(recorded);
  }
  DropCopies(operation);
  operations_.erase(operation->id());
  deadlines_.erase({request.deadline_ns, operation->id()});
  if (operation->let_go_of_lease) client_->LetGoOf(operation->lease);
  operation->Finish(status, operation->copies > 0);
  {
    std::lock_guard lock(mutex_);
    --operation_count_;
  }
  std::vector<PartPtr> parts;
  for (const auto& [number, part] : parts_) {
    if (part->operation == operation) parts.push_back(part);
  }
  for (const PartPtr& part : parts) {
    if (part->transfer != 0 && !part->transfer_done) client_->Cancel(part->transfer);
    FreeIfOver(part);
  }
}

}  // namespace quarry
