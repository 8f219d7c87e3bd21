#include "client/transfer_operation.h"

#include <utility>

#include "common/clock.h"

namespace quarry {
namespace {

ItemResult WrongSize() {
  ItemResult result;
  result.status = absl::FailedPreconditionError("what is stored is not of the destination's size");
  return result;
}

}  // namespace

TransferOperation::TransferOperation(Context operation, std::vector<TransferItem> items, TransferSettings settings)
    : Operation(std::move(operation)),
      item_completions_(settings.item_completions),
      slots_(items.size()),
      open_items_(items.size()) {
  for (size_t i = 0; i < items.size(); ++i) {
    Slot& slot = slots_[i];
    slot.segments = std::move(items[i].segments);
    slot.exposed.segments = slot.segments;
    slot.exposed.bytes = items[i].bytes;
    slot.exposed.checksum = settings.checksum;
    slot.exposed.identity_seed = items[i].identity_seed;
  }
}

const transport::ExposedRequest::Item* TransferOperation::item(uint32_t index) const {
  return index < slots_.size() ? &slots_[index].exposed : nullptr;
}

void TransferOperation::OnItemArrived(uint32_t index, size_t bytes) {
  OnBytesLanded(bytes);
  if (bytes == item_bytes(index)) {
    EndItem(index, {}, bytes);
  } else {
    EndItem(index, WrongSize());
  }
}

void TransferOperation::OnItemFailed(uint32_t index, transport::TransferStatus status) {
  switch (status) {
    case transport::TransferStatus::kChecksum: {
      context().counters->checksum_failures.fetch_add(1, std::memory_order_relaxed);
      OnBytesLanded(item_bytes(index));
      ItemResult corrupt;
      corrupt.status = absl::DataLossError("the bytes that arrived do not have the checksum of those stored");
      return EndItem(index, std::move(corrupt));
    }
    case transport::TransferStatus::kWrongSize:
      OnBytesLanded(item_bytes(index));
      return EndItem(index, WrongSize());
    case transport::TransferStatus::kOk:
    case transport::TransferStatus::kCancelled:
    case transport::TransferStatus::kClosed:
      return;  // the session ends the whole operation
  }
}

void TransferOperation::EndItem(uint32_t index, ItemResult result, size_t bytes) {
  bool complete;
  {
    std::lock_guard lock(mutex_);
    Slot& slot = slots_[index];
    if (done_ || slot.ended) return;
    slot.ended = true;
    slot.result = std::move(result);
    bytes_ += bytes;
    --open_items_;
    complete = server_done_ && open_items_ == 0;
    if (item_completions_) {
      // Under the lock: no kItem comes behind kDone.
      Completion completion = MakeCompletion(Completion::Kind::kItem);
      completion.item = index;
      completion.status = slot.result.status;
      completion.item_result = std::make_shared<const ItemResult>(slot.result);
      context().queue->Push(std::move(completion));
    }
  }
  // Not from here: a channel must not be asked to withdraw what it is calling.
  if (complete) context().host->PostToOperation(id());
}

bool TransferOperation::ItemEnded(uint32_t index) const {
  std::lock_guard lock(mutex_);
  return slots_[index].ended;
}

void TransferOperation::SetServerDone() {
  {
    std::lock_guard lock(mutex_);
    server_done_ = true;
  }
  EndWhenComplete();
}

bool TransferOperation::IsLate() {
  if (Clock::Real()->NowNs() < deadline_ns()) return false;
  final_status_ = absl::DeadlineExceededError("the operation's deadline has passed");
  return true;
}

void TransferOperation::EndWhenComplete() {
  {
    std::lock_guard lock(mutex_);
    if (!server_done_ || open_items_ > 0) return;
  }
  context().host->EndOperation(id(), final_status_, OperationHost::EndedBy::kServer);
}

std::shared_ptr<TransferResult> TransferOperation::TakeResult(const absl::Status& status) {
  auto result = std::make_shared<TransferResult>();
  std::lock_guard lock(mutex_);
  done_ = true;
  result->bytes = bytes_;
  result->items.reserve(slots_.size());
  for (Slot& slot : slots_) {
    if (!slot.ended) slot.result.status = status;
    result->items.push_back(std::move(slot.result));
  }
  return result;
}

void TransferOperation::FillResult(const absl::Status& status, Completion* completion) {
  completion->transfer = TakeResult(status);
}

}  // namespace quarry
