#include "client/get_operation.h"

#include <utility>

#include "common/clock.h"

namespace quarry {

GetOperation::GetOperation(Context operation, std::vector<TransferItem> items, TransferSettings settings,
                           uint64_t window_bytes)
    : TransferOperation(std::move(operation), std::move(items), settings),
      window_bytes_(window_bytes),
      begin_ns_(Clock::Real()->NowNs()) {}

absl::Status GetOperation::OnMessage(const wire::ServerMessage& message) {
  const auto* progress = std::get_if<wire::GetProgress>(&message.body);
  if (progress == nullptr) return ProtocolViolation("a get was answered by another message");
  return OnProgress(*progress);
}

absl::Status GetOperation::OnProgress(const wire::GetProgress& progress) {
  for (size_t i = 0; i < progress.missed_items.size(); ++i) {
    if (progress.missed_items[i] >= item_count()) return ProtocolViolation("a get's miss names no item of it");
    if (progress.causes[i] == MissCause::kNone) return ProtocolViolation("a get's miss has no cause");
    ItemResult missed;
    missed.miss = progress.causes[i];
    EndItem(progress.missed_items[i], std::move(missed));
  }
  for (const uint32_t index : progress.dropped_items) {
    if (index >= item_count()) return ProtocolViolation("a get's dropped item is none of it");
    ItemResult dropped;
    dropped.status = Dropped();
    EndItem(index, std::move(dropped));
  }
  if (progress.done) SetServerDone();
  return absl::OkStatus();
}

void GetOperation::OnItemFailed(uint32_t index, transport::TransferStatus status) {
  if (status == transport::TransferStatus::kChecksum) {
    std::lock_guard lock(corrupt_mutex_);
    corrupt_items_.push_back(index);
  }
  TransferOperation::OnItemFailed(index, status);
}

void GetOperation::OnBytesLanded(size_t bytes) {
  landed_items_.fetch_add(1, std::memory_order_relaxed);
  landed_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (window_bytes_ == 0) return;
  const uint64_t before = uncredited_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  // Given back by halves of the window: few messages, and the server never runs dry,
  // because what is kept back is less than the window.
  const uint64_t threshold = (window_bytes_ + 1) / 2;
  if (before + bytes < threshold) return;
  const uint64_t credit = uncredited_bytes_.exchange(0, std::memory_order_relaxed);
  if (credit > 0) context().host->SendAside({id(), wire::Credit{credit}});
}

absl::Status GetOperation::Dropped() {
  if (IsLate()) return final_status();
  return absl::AbortedError(
      "the server gave the item up: its range reaches beyond what is stored, or the server is overloaded");
}

// The node serves gets from its DRAM tier, whatever is behind it.
void GetOperation::RecordRate(const absl::Status& status) const {
  if (!status.ok()) return;
  const uint64_t bytes = landed_bytes_.load(std::memory_order_relaxed);
  context().load_rates->Record(LoadTier::kDram, bytes, Clock::Real()->NowNs() - begin_ns_);
}

void GetOperation::FillResult(const absl::Status& status, Completion* completion) {
  RecordRate(status);
  TransferOperation::FillResult(status, completion);
}

void GetOperation::SayFarewell(const absl::Status& status, OperationHost::EndedBy by) {
  if (!status.ok()) return TransferOperation::SayFarewell(status, by);
  wire::Delivered delivered;
  delivered.items = landed_items_.load(std::memory_order_relaxed);
  delivered.bytes = landed_bytes_.load(std::memory_order_relaxed);
  {
    std::lock_guard lock(corrupt_mutex_);
    delivered.corrupt_items = corrupt_items_;
  }
  context().host->SendAside({id(), std::move(delivered)});
}

}  // namespace quarry
