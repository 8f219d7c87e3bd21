#include "common/transport/tcp/stream.h"

#include <sys/epoll.h>

#include <utility>

namespace quarry::transport::tcp {

Stream::Stream(UniqueFd fd, EventLoop* loop, FrameSink* sink, std::function<void()> refill,
               std::function<void(absl::Status)> on_broken)
    : fd_(std::move(fd)),
      loop_(loop),
      reader_(sink),
      writer_(std::make_unique<FrameWriter>()),
      refill_(std::move(refill)),
      on_broken_(std::move(on_broken)) {
  SetSocketBuffers(fd_.get(), kSocketBufferBytes, kSocketBufferBytes);
}

Stream::~Stream() { Close(); }

void Stream::Open() {
  open_ = true;
  loop_->Add(fd_.get(), EPOLLIN, this);
  Flush();
}

void Stream::Close() {
  if (!open_) return;
  open_ = false;
  loop_->Remove(fd_.get(), this);
  fd_ = UniqueFd();
  // A fresh writer first: ends of items may look at it.
  const std::unique_ptr<FrameWriter> old = std::exchange(writer_, std::make_unique<FrameWriter>());
}

void Stream::Break(const absl::Status& status) {
  if (!open_) return;
  Close();
  on_broken_(status);
}

void Stream::OnEvents(uint32_t events) {
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    if (absl::Status status = reader_.Read(fd_.get(), kBudgetBytes); !status.ok()) {
      Break(status);
      return;
    }
  }
  if (open_) Flush();
}

void Stream::Flush() {
  if (!open_ || flushing_) return;  // the ends of items push more; the loop below sends it
  flushing_ = true;
  refill_();
  const absl::Status status = writer_->Write(fd_.get(), kBudgetBytes);
  flushing_ = false;
  if (!status.ok()) {
    Break(status);
    return;
  }
  if (!open_) return;
  refill_();
  const bool want_writable = !writer_->idle();
  if (want_writable != writable_armed_) {
    writable_armed_ = want_writable;
    loop_->Modify(fd_.get(), EPOLLIN | (want_writable ? EPOLLOUT : 0u), this);
  }
}

}  // namespace quarry::transport::tcp
