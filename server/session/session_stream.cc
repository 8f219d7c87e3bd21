#include "server/session/session_stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace quarry::server {

SessionStream::SessionStream(UniqueFd fd, EventLoop* loop, wire::MessageBuffer buffer,
                             std::function<void(absl::string_view)> on_message,
                             std::function<void(absl::Status)> on_closed)
    : fd_(std::move(fd)),
      loop_(loop),
      in_(std::move(buffer)),
      on_message_(std::move(on_message)),
      on_closed_(std::move(on_closed)) {}

SessionStream::~SessionStream() { Close(); }

void SessionStream::Open() {
  open_ = true;
  loop_->Add(fd_.get(), EPOLLIN, this);
  HandleBuffered();
}

void SessionStream::Close() {
  if (!open_) return;
  open_ = false;
  // What has been said already, an error most likely, still goes out if the socket takes it.
  if (out_sent_ < out_.size()) {
    [[maybe_unused]] ssize_t sent =
        send(fd_.get(), out_.data() + out_sent_, out_.size() - out_sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  loop_->Remove(fd_.get(), this);
  fd_ = UniqueFd();
}

void SessionStream::Break(const absl::Status& status) {
  if (!open_) return;
  Close();
  on_closed_(status);
}

void SessionStream::Send(const wire::ServerMessage& message) {
  if (!fd_) return;
  wire::AppendFramed(message, &out_);
  if (!in_round_) Flush();
}

void SessionStream::OnEvents(uint32_t events) {
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    if (absl::Status status = in_.Fill(fd_.get()); !status.ok()) {
      Break(status);
      return;
    }
    HandleBuffered();
  } else {
    Flush();
  }
}

void SessionStream::HandleBuffered() {
  in_round_ = true;
  absl::string_view message;
  absl::Status status;
  while (open_ && in_.Next(&message, &status)) {
    on_message_(message);
    if (out_.size() - out_sent_ > kMaxUnsentBytes) Flush();  // the end of the round would be too late
  }
  in_round_ = false;
  if (!status.ok()) {
    Break(status);
    return;
  }
  Flush();
}

void SessionStream::Flush() {
  if (!open_) return;
  while (out_sent_ < out_.size()) {
    const ssize_t sent = send(fd_.get(), out_.data() + out_sent_, out_.size() - out_sent_, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) break;
      Break(ErrnoStatus(errno, "send"));
      return;
    }
    out_sent_ += static_cast<size_t>(sent);
  }
  if (out_sent_ == out_.size()) {
    out_.clear();
    out_sent_ = 0;
    if (out_.capacity() > kMaxKeptBytes) out_.shrink_to_fit();
  } else if (out_.size() - out_sent_ > kMaxUnsentBytes) {
    Break(absl::ResourceExhaustedError("the client does not read its answers"));
    return;
  } else if (out_sent_ > out_.size() / 2) {
    // A client that is always behind a little never lets it become empty.
    out_.erase(0, out_sent_);
    out_sent_ = 0;
  }
  const bool want_writable = !out_.empty();
  if (want_writable != writable_armed_) {
    writable_armed_ = want_writable;
    loop_->Modify(fd_.get(), EPOLLIN | (want_writable ? EPOLLOUT : 0u), this);
  }
}

}  // namespace quarry::server
