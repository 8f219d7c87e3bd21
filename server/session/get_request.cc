#include "server/session/get_request.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/checksum.h"
#include "common/clock.h"
#include "common/transport/chunk_verifier.h"
#include "server/cache_service.h"
#include "server/scheduler/transfer_scheduler.h"
#include "server/session/session.h"

namespace quarry::server {

using transport::Transfer;
using transport::TransferStatus;

// Moves a range of one slot to the client; keeps the slot from being reused.
class GetRequest::SlotTransfer : public Transfer {
 public:
  // `cold_bytes`: what it counts towards kLoadAheadBytes.
  SlotTransfer(std::shared_ptr<GetRequest> request, const Item& item, SlotRef slot, uint64_t cold_bytes)
      : request_(std::move(request)), slot_(std::move(slot)), cold_bytes_(cold_bytes) {
    SlotHeader* header = slot_.header();
    kind = Kind::kWrite;
    id = {request_->id(), item.number};
    offset = item.part.offset;
    payload_bytes = header->payload_bytes;
    bytes = item.part.bytes != 0 ? item.part.bytes : payload_bytes - offset;
    data = slot_.payload() + offset;
    root = header->root;
    sums = header->sums;
    deadline_ns = request_->deadline_ns();
  }

  // Where the range cuts a chunk, the sum of the piece is made from the stored bytes, which
  // must first prove to be those that were summed.
  bool Prepare() override {
    const transport::PayloadRange range{offset, bytes, payload_bytes};
    const transport::RangeEdges edges = transport::EdgesOf(range);
    const size_t end = offset + bytes;
    const size_t first_end = std::min(end, (offset / kChunkBytes + 1) * kChunkBytes);
    const size_t last_begin = (end - 1) / kChunkBytes * kChunkBytes;
    return (!edges.first_partial || SumEdge(offset, first_end, &edge_sums[0])) &&
           (!edges.last_partial || SumEdge(last_begin, end, &edge_sums[1]));
  }

  void Finish(TransferStatus status) override {
    slot_ = SlotRef();
    if (status == TransferStatus::kOk) request_->moved_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (cold_bytes_ != 0) request_->EndCold(cold_bytes_);
    request_->OnTransferEnded(id.item, status);
  }

 private:
  bool SumEdge(size_t begin, size_t end, uint64_t* sum) const {
    const size_t chunk = begin / kChunkBytes;
    const size_t chunk_bytes = std::min(kChunkBytes, payload_bytes - chunk * kChunkBytes);
    if (ChunkSum(slot_.payload() + chunk * kChunkBytes, chunk_bytes) != sums[chunk]) return false;
    *sum = ChunkSum(slot_.payload() + begin, end - begin);
    return true;
  }

  const std::shared_ptr<GetRequest> request_;
  SlotRef slot_;
  const uint64_t cold_bytes_;
};

GetRequest::GetRequest(std::shared_ptr<Session> session, uint64_t id, Op op, const Namespace* ns,
                       const Options& options)
    : Request(std::move(session), id, op, options.deadline_ms),
      ns_(ns),
      options_(options),
      credit_(options.credit_bytes) {}

void GetRequest::Add(uint32_t group, uint32_t shard, HashSpan hashes, uint64_t offset, uint64_t bytes) {
  std::vector<ReadResult> reads;
  session().service().store().Read(*ns_, group, shard, hashes, &reads);
  for (size_t i = 0; i < hashes.size(); ++i) {
    items_.push_back({next_item_++, group, shard, {offset, bytes}, std::string(hashes[i])});
    AddOne(items_.back(), std::move(reads[i]));
  }
}

void GetRequest::AddOne(const Item& item, ReadResult read) {
  open_items_.fetch_add(1, std::memory_order_relaxed);
  if (read.slot) {
    const uint64_t stored = read.slot.header()->payload_bytes;
    if (item.part.offset >= stored || item.part.bytes > stored - item.part.offset) {
      OnTransferEnded(item.number, TransferStatus::kCancelled);  // the range is not within the payload
    } else {
      unsubmitted_.push_back(std::make_unique<SlotTransfer>(std::static_pointer_cast<GetRequest>(shared_from_this()),
                                                            item, std::move(read.slot), read.on_ssd ? stored : 0));
    }
  } else if (read.on_ssd) {
    cold_.push_back({item, read.payload_bytes});
  } else if (!(read.miss == MissCause::kInFlight && options_.wait_in_flight && WaitForPut(item))) {
    Miss(item, read.miss);
  }
}

void GetRequest::Miss(const Item& item, MissCause cause) {
  misses_.missed_items.push_back(item.number);
  misses_.causes.push_back(cause);
  CloseItem();
}

void GetRequest::LoadMore() {
  std::vector<Cold> together;
  while (!cold_.empty()) {
    const Cold& next = cold_.front();
    if (cold_bytes_ != 0 && cold_bytes_ + next.payload_bytes > kLoadAheadBytes) break;
    if (!together.empty() &&
        (together.back().item.group != next.item.group || together.back().item.shard != next.item.shard ||
         together.back().item.part != next.item.part)) {
      Load(std::exchange(together, {}));
    }
    cold_bytes_ += next.payload_bytes;
    together.push_back(std::move(cold_.front()));
    cold_.pop_front();
  }
  if (!together.empty()) Load(std::move(together));
}

// Of one group and shard, and the same part of each.
void GetRequest::Load(std::vector<Cold> items) {
  const uint32_t group = items.front().item.group;
  const uint32_t shard = items.front().item.shard;
  const PayloadPart part = items.front().item.part;
  std::string hashes;
  for (const Cold& cold : items) hashes += cold.item.hash;
  const auto hash_bytes = static_cast<uint32_t>(items.front().item.hash.size());
  const size_t first = loading_.size();
  std::move(items.begin(), items.end(), std::back_inserter(loading_));
  // Not kept alive by the disk, which may take longer than the request.
  const auto done = [self = std::weak_ptr<Request>(shared_from_this()), first](size_t item, ReadResult read) {
    auto request = std::static_pointer_cast<GetRequest>(self.lock());
    if (request != nullptr) request->Arrive(first + item, std::move(read));
  };
  session().service().store().Load(*ns_, group, shard, HashSpan(hashes, hash_bytes), done, part);
}

void GetRequest::Arrive(size_t loading_index, ReadResult read) {
  std::lock_guard lock(mutex_);
  arrived_.emplace_back(loading_index, std::move(read));
  if (arrived_.size() != 1) return;
  session().loop()->Post([self = std::static_pointer_cast<GetRequest>(shared_from_this())] { self->TakeArrived(); });
}

void GetRequest::TakeArrived() {
  std::vector<std::pair<size_t, ReadResult>> arrived;
  {
    std::lock_guard lock(mutex_);
    arrived = std::exchange(arrived_, {});
  }
  for (auto& [index, read] : arrived) OnLoaded(index, std::move(read));
  SubmitWithinCredit();
}

void GetRequest::OnLoaded(size_t loading_index, ReadResult read) {
  const Cold cold = std::exchange(loading_[loading_index], {});
  if (cold.item.hash.empty()) return;  // aborted meanwhile
  if (read.slot) {
    read.on_ssd = true;
    AddOne(cold.item, std::move(read));
    CloseItem();  // AddOne opened it once more
    return;
  }
  if (read.miss != MissCause::kNone) {
    Miss(cold.item, read.miss);
  } else {
    OnTransferEnded(cold.item.number, TransferStatus::kCancelled);  // no memory
  }
  OnColdEnded(cold.payload_bytes);
}

void GetRequest::EndCold(uint64_t payload_bytes) {
  if (ended_cold_bytes_.fetch_add(payload_bytes) != 0) return;
  session().loop()->Post([self = std::static_pointer_cast<GetRequest>(shared_from_this())] {
    self->OnColdEnded(self->ended_cold_bytes_.exchange(0));
  });
}

void GetRequest::OnColdEnded(uint64_t payload_bytes) {
  cold_bytes_ -= payload_bytes;
  if (!aborted_) LoadMore();
}

bool GetRequest::WaitForPut(const Item& item) {
  if (!session().BeginWait()) return false;
  const size_t index = waiting_.size();
  waiting_.push_back(item);
  // Not kept alive by what it waits for, which may go on long after a cancel.
  auto again = [owner = session().shared_from_this(), self = std::weak_ptr<Request>(shared_from_this()), index] {
    owner->loop()->Post([owner, self, index] {
      owner->EndWait();
      if (auto request = self.lock()) std::static_pointer_cast<GetRequest>(std::move(request))->ReadAgain(index);
    });
  };
  // The put may end between Read and here: then there is nothing to wait for, and another
  // read tells.
  if (!session().service().store().WaitForPut(*ns_, item.group, item.shard, item.hash, again)) again();
  return true;
}

void GetRequest::ReadAgain(size_t waiting_index) {
  const Item item = std::exchange(waiting_[waiting_index], {});
  if (item.hash.empty()) return;  // aborted meanwhile
  std::vector<ReadResult> reads;
  session().service().store().Read(*ns_, item.group, item.shard,
                                   HashSpan(item.hash, static_cast<uint32_t>(item.hash.size())), &reads);
  AddOne(item, std::move(reads[0]));
  SubmitWithinCredit();
  CloseItem();  // AddOne opened it once more
}

void GetRequest::Start() {
  Arm();
  started_ = true;
  misses_.done = true;  // no further miss, unless a put is waited for
  session().Send(id(), std::exchange(misses_, {}));
  LoadMore();
  SubmitWithinCredit();
  CloseItem();
}

void GetRequest::SubmitWithinCredit() {
  std::vector<std::unique_ptr<Transfer>> batch;
  while (!unsubmitted_.empty()) {
    if (options_.credit_bytes != 0 && started_bytes_ >= credit_) break;
    started_bytes_ += unsubmitted_.front()->bytes;
    batch.push_back(std::move(unsubmitted_.front()));
    unsubmitted_.pop_front();
  }
  if (!batch.empty()) session().scheduler().Submit(session().scheduler_id(), options_.priority, std::move(batch));
}

void GetRequest::AddCredit(uint64_t bytes) {
  credit_ += std::min(bytes, ~uint64_t{0} - credit_);
  SubmitWithinCredit();
}

void GetRequest::Abort() {
  if (std::exchange(aborted_, true)) return;
  const auto self = shared_from_this();
  for (Item& item : waiting_) {
    if (!std::exchange(item.hash, {}).empty()) OnTransferEnded(item.number, TransferStatus::kCancelled);
  }
  for (Cold& cold : loading_) {
    if (!std::exchange(cold.item.hash, {}).empty()) OnTransferEnded(cold.item.number, TransferStatus::kCancelled);
  }
  for (const Cold& cold : std::exchange(cold_, {})) OnTransferEnded(cold.item.number, TransferStatus::kCancelled);
  for (auto& transfer : std::exchange(unsubmitted_, {})) transfer->Finish(TransferStatus::kCancelled);
  session().scheduler().Cancel(session().scheduler_id(), id());
}

void GetRequest::OnTransferEnded(uint32_t number, TransferStatus status) {
  if (status != TransferStatus::kOk) {
    std::lock_guard lock(mutex_);
    (status == TransferStatus::kChecksum ? corrupt_ : dropped_).push_back(number);
  }
  CloseItem();
}

void GetRequest::CloseItem() {
  if (open_items_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  session().loop()->Post([self = std::static_pointer_cast<GetRequest>(shared_from_this())] { self->SendEnd(); });
}

void GetRequest::SendEnd() {
  wire::GetProgress end = std::exchange(misses_, {});
  {
    std::lock_guard lock(mutex_);
    for (uint32_t number : corrupt_) {
      end.missed_items.push_back(number);
      end.causes.push_back(MissCause::kCorrupt);
    }
    end.dropped_items = dropped_;
  }
  for (size_t i = 0; i < end.missed_items.size(); ++i) {
    if (end.causes[i] == MissCause::kCorrupt) CheckStored(end.missed_items[i]);
  }
  // What waited for a put says nothing of the network.
  if (waiting_.empty()) {
    const LoadTier tier = loading_.empty() ? LoadTier::kDram : LoadTier::kSsd;
    TransferRate& rate = session().service().metrics().get_rates[static_cast<size_t>(tier)];
    rate.Record(moved_bytes_.load(std::memory_order_relaxed), Clock::Real()->NowNs() - begin_ns());
  }
  end.done = true;
  if (!end.missed_items.empty() || !end.dropped_items.empty()) session().Send(id(), std::move(end));
  Complete();
}

void GetRequest::CheckStored(uint32_t number) {
  const auto it = std::find_if(items_.begin(), items_.end(), [&](const Item& item) { return item.number == number; });
  if (it == items_.end()) return;
  std::vector<ReadResult> reads;
  BlockStore& store = session().service().store();
  store.Read(*ns_, it->group, it->shard, HashSpan(it->hash, static_cast<uint32_t>(it->hash.size())), &reads);
  if (!reads[0].slot) return;
  const SlotHeader& header = *reads[0].slot.header();
  std::vector<uint64_t> sums(ChunkCount(header.payload_bytes));
  const Segment whole{reads[0].slot.payload(), header.payload_bytes, 0, 1};
  SumSegments(absl::MakeConstSpan(&whole, 1), header.payload_bytes, sums.data());
  const uint64_t seed = IdentitySeed(ns_->id, it->group, it->shard, it->hash);
  if (RootSum(seed, header.payload_bytes, sums) != header.root) store.DropCorrupt(*ns_, it->group, it->hash);
}

}  // namespace quarry::server
