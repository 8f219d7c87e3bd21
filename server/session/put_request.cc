#include "server/session/put_request.h"

#include <utility>

#include "common/checksum.h"
#include "server/cache_service.h"
#include "server/scheduler/transfer_scheduler.h"
#include "server/session/session.h"

namespace quarry::server {

using transport::Transfer;
using transport::TransferStatus;

// Moves the client's item into a reserved slot.
class PutRequest::SlotTransfer : public Transfer {
 public:
  SlotTransfer(std::shared_ptr<PutRequest> request, uint32_t number, PutTicket ticket)
      : request_(std::move(request)), number_(number), ticket_(std::move(ticket)) {
    const Item& item = request_->items_[number];
    kind = Kind::kRead;
    id = {request_->id(), number};
    data = ticket_.slot().payload();
    bytes = payload_bytes = item.bytes;
    sums = ticket_.slot().header()->sums;
    deadline_ns = request_->deadline_ns();
  }

  void Finish(TransferStatus status) override {
    Ended ended{number_, PutOutcome::kRefused, ReasonFor(status)};
    if (status == TransferStatus::kOk) {
      const Item& item = request_->items_[number_];
      const uint64_t seed = IdentitySeed(request_->ns_->id, item.group, item.shard, item.hash);
      const uint64_t computed = RootSum(seed, bytes, absl::MakeConstSpan(sums, ChunkCount(bytes)));
      // The root is 0 when the client left the summing to the server.
      if (root == 0 || root == computed) {
        SlotHeader* header = ticket_.slot().header();
        header->root = computed;
        header->payload_bytes = bytes;
        ticket_.Publish();
        ended = {number_, PutOutcome::kStored, RefusalReason::kNone};
      } else {
        ended.reason = RefusalReason::kChecksum;
      }
    }
    if (ended.outcome == PutOutcome::kRefused) ticket_.Refuse(ended.reason);
    request_->OnTransferEnded(ended, bytes);
  }

 private:
  static RefusalReason ReasonFor(TransferStatus status) {
    switch (status) {
      case TransferStatus::kOk:
        return RefusalReason::kNone;
      case TransferStatus::kChecksum:
        return RefusalReason::kChecksum;
      case TransferStatus::kWrongSize:
        return RefusalReason::kWrongSize;
      case TransferStatus::kCancelled:
      case TransferStatus::kClosed:
        return RefusalReason::kCancelled;
    }
    return RefusalReason::kCancelled;
  }

  const std::shared_ptr<PutRequest> request_;
  const uint32_t number_;
  PutTicket ticket_;
};

PutRequest::PutRequest(std::shared_ptr<Session> session, uint64_t id, const Namespace* ns, const wire::Put& put)
    : Request(std::move(session), id, Op::kPut, put.deadline_ms),
      ns_(ns),
      priority_(put.priority),
      retain_ms_(put.retain_ms),
      no_ssd_(put.no_ssd),
      wait_in_flight_(put.wait_in_flight) {
  CopyItems(put);
  undecided_ = static_cast<uint32_t>(items_.size());
  waiting_.resize(items_.size());
}

void PutRequest::CopyItems(const wire::Put& put) {
  size_t total = 0;
  for (const wire::PutRun& run : put.runs) total += run.parent.size() + run.hashes.size();
  bytes_.reserve(total);  // never moved: items have views of it
  for (const wire::PutRun& run : put.runs) {
    const auto keep = [&](absl::string_view bytes) {
      const size_t begin = bytes_.size();
      bytes_.append(bytes.data(), bytes.size());
      return absl::string_view(bytes_).substr(begin, bytes.size());
    };
    absl::string_view parent = keep(run.parent);
    const HashSpan hashes(keep(run.hashes), ns_->spec.hash_bytes);
    for (size_t i = 0; i < hashes.size(); ++i) {
      const uint64_t bytes = run.bytes.size() == 1 ? run.bytes[0] : run.bytes[i];
      items_.push_back({run.group, run.shard, run.first_block + i, bytes, hashes[i], parent});
      parent = hashes[i];
    }
  }
}

void PutRequest::Advance() {
  std::vector<std::unique_ptr<Transfer>> wanted;
  while (!again_.empty() && session().MayReserve(items_[again_.front()].bytes)) {
    const uint32_t number = again_.front();
    again_.pop_front();
    waiting_[number] = false;
    OfferItem(number, &wanted);
  }
  while (next_ < items_.size() && session().MayReserve(items_[next_].bytes)) OfferItem(next_++, &wanted);
  if (!wanted.empty()) session().scheduler().Submit(session().scheduler_id(), priority_, std::move(wanted));
  const bool more = !again_.empty() || next_ < items_.size();
  if (more && !std::exchange(room_wanted_, true)) session().WaitForRoom(shared_from_this());
  SendDecided();
}

void PutRequest::OfferItem(uint32_t number, std::vector<std::unique_ptr<Transfer>>* wanted) {
  const Item& item = items_[number];
  OfferResult result = session().service().store().Offer(
      *ns_, {item.group, item.shard, item.hash, item.parent, item.depth, item.bytes, retain_ms_, no_ssd_});
  if (result.outcome == PutOutcome::kUnknown) {
    session().Reserve(item.bytes);
    wanted->push_back(std::make_unique<SlotTransfer>(std::static_pointer_cast<PutRequest>(shared_from_this()), number,
                                                     std::move(result.ticket)));
  } else if (!(result.reason == RefusalReason::kInFlight && wait_in_flight_ && WaitForOther(number))) {
    Decide(number, result.outcome, result.reason);
  }
}

// After the other put has ended, however it did, the item is offered again.
bool PutRequest::WaitForOther(uint32_t number) {
  if (!session().BeginWait()) return false;
  const Item& item = items_[number];
  waiting_[number] = true;
  // Not kept alive by what it waits for, which may go on long after a cancel.
  auto again = [owner = session().shared_from_this(), self = std::weak_ptr<Request>(shared_from_this()), number] {
    owner->loop()->Post([owner, self, number] {
      owner->EndWait();
      if (auto request = self.lock()) std::static_pointer_cast<PutRequest>(std::move(request))->OfferAgain(number);
    });
  };
  if (!session().service().store().WaitForPut(*ns_, item.group, item.shard, item.hash, again)) again();
  return true;
}

void PutRequest::OfferAgain(uint32_t number) {
  if (!waiting_[number]) return;  // aborted meanwhile
  again_.push_back(number);
  Advance();
}

void PutRequest::Decide(uint32_t number, PutOutcome outcome, RefusalReason reason) {
  decided_.items.push_back(number);
  decided_.outcomes.push_back(outcome);
  decided_.reasons.push_back(reason);
  --undecided_;
}

void PutRequest::SendDecided() {
  if (decided_.items.empty()) return;
  const bool done = undecided_ == 0;  // sending may end the session, and so decide the rest
  decided_.done = done;
  session().Send(id(), std::exchange(decided_, {}));
  if (done) Complete();
}

void PutRequest::OnTransferEnded(Ended ended, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  ended_.push_back(ended);
  ended_bytes_ += bytes;
  if (std::exchange(take_posted_, true)) return;
  session().loop()->Post([self = std::static_pointer_cast<PutRequest>(shared_from_this())] { self->TakeEnded(); });
}

void PutRequest::TakeEnded() {
  std::vector<Ended> ended;
  {
    std::lock_guard lock(mutex_);
    take_posted_ = false;
    ended.swap(ended_);
    session().Unreserve(std::exchange(ended_bytes_, 0));
  }
  for (const Ended& end : ended) Decide(end.number, end.outcome, end.reason);
  SendDecided();
  session().OfferRoom();
}

void PutRequest::Abort() {
  if (std::exchange(aborted_, true)) return;
  const auto self = shared_from_this();
  for (uint32_t number = next_; number < items_.size(); ++number) {
    Decide(number, PutOutcome::kRefused, RefusalReason::kCancelled);
  }
  next_ = static_cast<uint32_t>(items_.size());
  again_.clear();
  for (uint32_t number = 0; number < waiting_.size(); ++number) {
    if (!waiting_[number]) continue;
    waiting_[number] = false;
    Decide(number, PutOutcome::kRefused, RefusalReason::kCancelled);
  }
  session().scheduler().Cancel(session().scheduler_id(), id());
  SendDecided();
}

}  // namespace quarry::server
