#include "common/transport/loopback/loopback.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/checksum.h"
#include "common/clock.h"

namespace quarry::transport::loopback {

class LoopbackLink::ServerEnd : public ServerChannel {
 public:
  explicit ServerEnd(LoopbackLink* link) : link_(link) {}

  void Start(std::unique_ptr<Transfer> transfer) override {
    {
      std::lock_guard lock(link_->mutex_);
      if (!link_->closed_) {
        link_->queue_.push_back(std::move(transfer));
        return;
      }
    }
    transfer->Finish(TransferStatus::kClosed);
  }

  void Cancel(uint64_t request) override {
    std::vector<std::unique_ptr<Transfer>> ended;
    {
      std::lock_guard lock(link_->mutex_);
      link_->CancelActiveLocked(request);
      for (auto& transfer : link_->queue_) {
        if (transfer->id.request == request) ended.push_back(std::move(transfer));
      }
      std::erase(link_->queue_, nullptr);
    }
    for (auto& transfer : ended) transfer->Finish(TransferStatus::kCancelled);
  }

  void Close() override {
    std::deque<std::unique_ptr<Transfer>> ended;
    {
      std::lock_guard lock(link_->mutex_);
      link_->closed_ = true;
      ended.swap(link_->queue_);
    }
    for (auto& transfer : ended) transfer->Finish(TransferStatus::kClosed);
    if (link_->active_.transfer != nullptr) link_->End(TransferStatus::kClosed);
  }

  bool AddStream(int fd, EventLoop*) override {
    close(fd);
    return false;
  }

  const char* transport_name() const override { return "loopback"; }

 private:
  LoopbackLink* const link_;
};

class LoopbackLink::ClientEnd : public ClientChannel {
 public:
  explicit ClientEnd(LoopbackLink* link) : link_(link) {}

  void Expose(uint64_t request, std::shared_ptr<ExposedRequest> exposed) override {
    link_->table_.Expose(request, std::move(exposed));
  }

  Release Withdraw(uint64_t request, std::function<void()> released) override {
    link_->table_.Withdraw(request);
    // The server stops touching the buffers at its next step.
    std::lock_guard lock(link_->mutex_);
    link_->CancelActiveLocked(request);
    return link_->table_.ReleaseWhenUnused(request, std::move(released));
  }

  const char* transport_name() const override { return "loopback"; }

 private:
  LoopbackLink* const link_;
};

void LoopbackLink::CancelActiveLocked(uint64_t request) {
  if (active_request_ == request) active_cancelled_ = true;
}

LoopbackLink::LoopbackLink() : server_(std::make_unique<ServerEnd>(this)), client_(std::make_unique<ClientEnd>(this)) {}

LoopbackLink::~LoopbackLink() { server_->Close(); }

ServerChannel& LoopbackLink::server() { return *server_; }
ClientChannel& LoopbackLink::client() { return *client_; }

void LoopbackLink::RunUntilIdle() {
  while (Step()) {
  }
}

bool LoopbackLink::Step() {
  if (active_.transfer == nullptr) {
    std::unique_ptr<Transfer> next;
    {
      std::lock_guard lock(mutex_);
      if (queue_.empty()) return false;
      next = std::move(queue_.front());
      queue_.pop_front();
      active_request_ = next->id.request;
      active_cancelled_ = false;
    }
    Begin(std::move(next));
    return true;
  }
  Transfer& transfer = *active_.transfer;
  bool cancelled;
  {
    std::lock_guard lock(mutex_);
    cancelled = active_cancelled_;
  }
  if (cancelled) {
    End(TransferStatus::kCancelled);
    return true;
  }
  const ExposedRequest::Item& item = *active_.exposed->item(transfer.id.item);
  const bool write = transfer.kind == Transfer::Kind::kWrite;
  iovec piece;
  SegmentCursor cursor(item.segments, active_.moved);
  size_t left = std::min(kStepBytes, transfer.bytes - active_.moved);
  while (left > 0) {
    size_t covered = 0;
    cursor.Peek(&piece, 1, left, &covered);
    std::byte* slot = transfer.data + active_.moved;
    if (write) {
      std::memcpy(piece.iov_base, slot, covered);
    } else {
      std::memcpy(slot, piece.iov_base, covered);
    }
    cursor.Advance(covered);
    active_.moved += covered;
    left -= covered;
  }
  if (active_.moved == transfer.bytes) End(Verify() ? TransferStatus::kOk : TransferStatus::kChecksum);
  return true;
}

void LoopbackLink::Begin(std::unique_ptr<Transfer> transfer) {
  if (!transfer->Prepare()) {
    transfer->Finish(TransferStatus::kChecksum);
    return;
  }
  const bool late = transfer->deadline_ns != 0 && Clock::Real()->NowNs() > transfer->deadline_ns;
  std::shared_ptr<ExposedRequest> exposed = late ? nullptr : table_.BeginUse(transfer->id.request);
  const ExposedRequest::Item* item = exposed != nullptr ? exposed->item(transfer->id.item) : nullptr;
  active_ = Active{std::move(transfer), std::move(exposed), 0};
  if (item == nullptr) {
    End(TransferStatus::kCancelled);
  } else if (item->bytes != active_.transfer->bytes) {
    End(TransferStatus::kWrongSize);
  } else if (active_.transfer->kind == Transfer::Kind::kRead && item->checksum) {
    // As over a wire: the sums are those of the source before it is read.
    std::vector<uint64_t> sums(ChunkCount(item->bytes));
    SumSegments(item->segments, item->bytes, sums.data());
    active_.transfer->root = RootSum(item->identity_seed, item->bytes, sums);
  }
}

bool LoopbackLink::Verify() {
  Transfer& transfer = *active_.transfer;
  const ExposedRequest::Item& item = *active_.exposed->item(transfer.id.item);
  if (transfer.kind == Transfer::Kind::kRead) {
    const Segment slot{transfer.data, transfer.bytes, 0, 1};
    SumSegments(absl::MakeConstSpan(&slot, 1), transfer.bytes, transfer.sums);
    const auto sums = absl::MakeConstSpan(transfer.sums, ChunkCount(transfer.bytes));
    return !item.checksum || transfer.root == RootSum(item.identity_seed, transfer.bytes, sums);
  }
  if (!item.checksum) return true;
  const auto sums = absl::MakeConstSpan(transfer.sums, ChunkCount(transfer.payload_bytes));
  ChunkVerifier verifier;
  verifier.Start(item.segments, {transfer.offset, transfer.bytes, transfer.payload_bytes}, sums, transfer.edge_sums,
                 nullptr);
  verifier.Advance(transfer.bytes);
  return verifier.intact() && transfer.root == RootSum(item.identity_seed, transfer.payload_bytes, sums);
}

void LoopbackLink::End(TransferStatus status) {
  Active ended = std::exchange(active_, {});
  const ItemId id = ended.transfer->id;
  const bool write = ended.transfer->kind == Transfer::Kind::kWrite;
  const size_t bytes = ended.transfer->bytes;
  if (ended.exposed != nullptr) table_.EndUse(id.request);
  // The peer is told what it could see for itself: a write that failed its sums.
  const bool told = status == TransferStatus::kChecksum || status == TransferStatus::kWrongSize;
  ended.transfer->Finish(write && told ? TransferStatus::kOk : status);
  if (ended.exposed == nullptr) return;
  if (!write) {
    // Whatever it was found to be, it has been read.
    if (status == TransferStatus::kOk || status == TransferStatus::kChecksum) ended.exposed->OnItemSent(id.item);
  } else if (status == TransferStatus::kOk) {
    ended.exposed->OnItemArrived(id.item, bytes);
  } else if (told) {
    ended.exposed->OnItemFailed(id.item, status);
  }
}

}  // namespace quarry::transport::loopback
