#include "common/transport/tcp/server_channel.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/transport/tcp/server_stream.h"

namespace quarry::transport::tcp {

TcpServerChannel::TcpServerChannel(ServerChannelContext context)
    : shared_(std::make_shared<Shared>(std::move(context))) {}

TcpServerChannel::~TcpServerChannel() { Close(); }

std::vector<std::shared_ptr<ServerStream>> TcpServerChannel::streams() const {
  std::lock_guard lock(mutex_);
  return streams_;
}

bool TcpServerChannel::AddStream(int fd, EventLoop* loop) {
  UniqueFd owned(fd);
  std::shared_ptr<ServerStream> stream;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || streams_.size() >= shared_->context.max_streams) return false;
    stream = std::make_shared<ServerStream>(std::move(owned), loop, [shared = shared_](const absl::Status& status) {
      // Streams break one by one, on different threads, and after Close as well.
      if (!shared->told.exchange(true)) shared->context.on_closed(status);
    });
    streams_.push_back(stream);
  }
  stream->PostOpen();
  return true;
}

void TcpServerChannel::Start(std::unique_ptr<Transfer> transfer) {
  std::shared_ptr<ServerStream> least;
  {
    std::lock_guard lock(mutex_);
    const auto it = std::min_element(streams_.begin(), streams_.end(), [](const auto& a, const auto& b) {
      return a->queued_bytes() < b->queued_bytes();
    });
    if (!closed_ && it != streams_.end()) least = *it;
  }
  if (least == nullptr) {
    transfer->Finish(TransferStatus::kClosed);
  } else {
    least->Start(std::move(transfer));
  }
}

void TcpServerChannel::Cancel(uint64_t request) {
  for (const auto& stream : streams()) stream->PostCancel(request);
}

void TcpServerChannel::Close() {
  std::vector<std::shared_ptr<ServerStream>> closing;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    shared_->told = true;
    closing.swap(streams_);
  }
  for (const auto& stream : closing) stream->PostClose();
}

}  // namespace quarry::transport::tcp
