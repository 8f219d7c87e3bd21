#include "common/transport/shm/server_channel.h"

#include <algorithm>
#include <utility>

namespace quarry::transport::shm {

ShmServerChannel::Shared::Shared(ServerChannelContext context) : told(std::make_shared<std::atomic<bool>>(false)) {
  // Streams of either kind break one by one, on different threads, and after Close as well.
  on_closed = [told = told, tell = std::move(context.on_closed)](const absl::Status& status) {
    if (!told->exchange(true)) tell(status);
  };
  context.on_closed = on_closed;
  tcp = std::make_unique<tcp::TcpServerChannel>(std::move(context));
  by_stream = tcp.get();
}

ShmServerChannel::ShmServerChannel(ServerChannelContext context)
    : max_streams_(context.max_streams), shared_(std::make_shared<Shared>(std::move(context))) {}

ShmServerChannel::~ShmServerChannel() { Close(); }

std::vector<std::shared_ptr<ServerStream>> ShmServerChannel::streams() const {
  std::lock_guard lock(mutex_);
  return streams_;
}

bool ShmServerChannel::AddStream(int fd, EventLoop* loop) { return shared_->tcp->AddStream(fd, loop); }

bool ShmServerChannel::AddSharedStream(int fd, EventLoop* loop, bool first) {
  UniqueFd owned(fd);
  std::shared_ptr<ServerStream> stream;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || streams_.size() >= max_streams_ || (first && has_first_)) return false;
    if (first) {
      has_first_ = true;
      shared_->peer = Peer::Of(owned.get());
    }
    stream = std::make_shared<ServerStream>(std::move(owned), loop, shared_, first);
    streams_.push_back(stream);
  }
  stream->PostOpen();
  return true;
}

void ShmServerChannel::Start(std::unique_ptr<Transfer> transfer) {
  std::shared_ptr<ServerStream> least;
  if (shared_->ready.load(std::memory_order_acquire)) {
    std::lock_guard lock(mutex_);
    const auto it = std::min_element(streams_.begin(), streams_.end(), [](const auto& a, const auto& b) {
      return a->queued_bytes() < b->queued_bytes();
    });
    if (!closed_ && it != streams_.end()) least = *it;
  }
  if (least == nullptr) {
    shared_->tcp->Start(std::move(transfer));
  } else {
    least->Start(std::move(transfer));
  }
}

void ShmServerChannel::Cancel(uint64_t request) {
  for (const auto& stream : streams()) stream->PostCancel(request);
  shared_->tcp->Cancel(request);
}

void ShmServerChannel::Close() {
  std::vector<std::shared_ptr<ServerStream>> closing;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    shared_->told->store(true);
    closing.swap(streams_);
  }
  for (const auto& stream : closing) stream->PostClose();
  shared_->tcp->Close();
}

}  // namespace quarry::transport::shm
