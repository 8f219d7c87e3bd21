#include "common/transport/transfer_inbox.h"

#include <utility>

#include "common/clock.h"

namespace quarry::transport {

void TransferInbox::Start(std::unique_ptr<Transfer> transfer) {
  {
    std::unique_lock lock(mutex_);
    if (closed_) {
      lock.unlock();
      transfer->Finish(TransferStatus::kClosed);
      return;
    }
    queued_bytes_.fetch_add(transfer->bytes, std::memory_order_relaxed);
    started_.push_back(std::move(transfer));
  }
  PostWork();
}

void TransferInbox::PostWork() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(work_posted_, true)) return;
  }
  loop_->Post([self = shared_from_this()] {
    {
      std::lock_guard lock(self->mutex_);
      self->work_posted_ = false;
    }
    self->Work();
  });
}

void TransferInbox::PostOpen() {
  loop_->Post([self = shared_from_this()] {
    {
      std::lock_guard lock(self->mutex_);
      if (self->closed_) return;
    }
    self->Open();
  });
}

void TransferInbox::PostCancel(uint64_t request) {
  loop_->Post([self = shared_from_this(), request] { self->Cancel(request); });
}

void TransferInbox::PostClose() {
  loop_->Post([self = shared_from_this()] { self->Close(); });
}

bool TransferInbox::IsLate(const Transfer& transfer) {
  return transfer.deadline_ns != 0 && Clock::Real()->NowNs() > transfer.deadline_ns;
}

std::vector<std::unique_ptr<Transfer>> TransferInbox::TakeStarted() {
  std::lock_guard lock(mutex_);
  return std::exchange(started_, {});
}

std::vector<std::unique_ptr<Transfer>> TransferInbox::CloseInbox() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  return std::exchange(started_, {});
}

void TransferInbox::Finish(std::unique_ptr<Transfer> transfer, TransferStatus status) {
  queued_bytes_.fetch_sub(transfer->bytes, std::memory_order_relaxed);
  transfer->Finish(status);
}

}  // namespace quarry::transport
