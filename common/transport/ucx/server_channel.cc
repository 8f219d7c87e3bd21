#include "common/transport/ucx/server_channel.h"

#include <utility>

namespace quarry::transport::ucx {

UcxServerChannel::UcxServerChannel(ServerChannelContext context, const MakeInner& make_inner)
    : host_(std::static_pointer_cast<Host>(context.ucx)),
      stuck_ns_(context.ucx_stuck_ns),
      told_(std::make_shared<std::atomic<bool>>(false)),
      ready_(std::make_shared<std::atomic<bool>>(false)) {
  on_closed_ = [told = told_, tell = std::move(context.on_closed)](const absl::Status& status) {
    if (!told->exchange(true)) tell(status);
  };
  context.on_closed = on_closed_;
  inner_ = make_inner(std::move(context));
}

UcxServerChannel::~UcxServerChannel() { Close(); }

std::shared_ptr<ServerStream> UcxServerChannel::stream() const {
  std::lock_guard lock(mutex_);
  return stream_;
}

bool UcxServerChannel::AddUcxStream(int fd, EventLoop* loop) {
  UniqueFd owned(fd);
  std::shared_ptr<ServerStream> stream;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || stream_ != nullptr || host_ == nullptr) return false;
    stream = std::make_shared<ServerStream>(
        std::move(owned), loop, host_, stuck_ns_, [ready = ready_] { ready->store(true, std::memory_order_release); },
        on_closed_);
    stream_ = stream;
  }
  stream->PostOpen();
  return true;
}

void UcxServerChannel::Start(std::unique_ptr<Transfer> transfer) {
  if (ready_->load(std::memory_order_acquire)) {
    if (const auto to = stream(); to != nullptr) return to->Start(std::move(transfer));
  }
  inner_->Start(std::move(transfer));
}

void UcxServerChannel::Cancel(uint64_t request) {
  if (const auto to = stream(); to != nullptr) to->PostCancel(request);
  inner_->Cancel(request);
}

void UcxServerChannel::Close() {
  std::shared_ptr<ServerStream> closing;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    told_->store(true);
    closing.swap(stream_);
  }
  if (closing != nullptr) closing->PostClose();
  inner_->Close();
}

}  // namespace quarry::transport::ucx
