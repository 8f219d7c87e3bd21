#include "client/control_stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry {
ControlStream::ControlStream(UniqueFd fd, EventLoop* loop, Listener* listener)
    : fd_(std::move(fd)), loop_(loop), listener_(listener) {}

void ControlStream::Start() {
  state_ = State::kRunning;
  loop_->Add(fd_.get(), EPOLLIN, this);
}

void ControlStream::Stop() {
  if (state_ == State::kRunning) loop_->Remove(fd_.get(), this);
  state_ = State::kStopped;
  // The peer must learn of it even while a forked child holds the descriptor as well.
  shutdown(fd_.get(), SHUT_RDWR);
}

size_t ControlStream::outgoing_bytes() const {
  std::lock_guard lock(write_mutex_);
  return outgoing_.size() - flushed_;
}

size_t ControlStream::TrySend(absl::string_view data) {
  size_t sent = 0;
  while (sent < data.size() && !write_failed_) {
    const ssize_t n = send(fd_.get(), data.data() + sent, data.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      // The loop is told by the descriptor itself, and breaks the stream.
      write_failed_ = true;
    }
  }
  return sent;
}

void ControlStream::Send(absl::string_view framed) {
  {
    std::lock_guard lock(write_mutex_);
    if (outgoing_.empty()) framed.remove_prefix(TrySend(framed));
    if (framed.empty() || write_failed_) return;
    const bool armed = !outgoing_.empty();
    outgoing_.append(framed.data(), framed.size());
    if (armed) return;
  }
  loop_->Post([self = shared_from_this()] {
    if (self->state_ == State::kRunning) self->loop_->Modify(self->fd_.get(), EPOLLIN | EPOLLOUT, self.get());
  });
}

void ControlStream::Flush() {
  std::lock_guard lock(write_mutex_);
  flushed_ += TrySend(absl::string_view(outgoing_).substr(flushed_));
  if (flushed_ < outgoing_.size() && !write_failed_) return;
  outgoing_.clear();
  outgoing_.shrink_to_fit();
  flushed_ = 0;
  loop_->Modify(fd_.get(), EPOLLIN, this);
}

void ControlStream::OnEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) Flush();
  if ((events & ~uint32_t{EPOLLOUT}) != 0) Receive();
}

void ControlStream::Receive() {
  absl::Status status = incoming_.Fill(fd_.get());
  absl::string_view message;
  while (status.ok() && incoming_.Next(&message, &status)) {
    listener_->OnControlMessage(message);
    if (state_ != State::kRunning) return;
  }
  if (!status.ok())
    Break(absl::UnavailableError(absl::StrCat("control stream: ", absl::string_view(status.message()))));
}

void ControlStream::Break(absl::Status why) {
  Stop();
  listener_->OnControlBroken(std::move(why));
}

}  // namespace quarry
