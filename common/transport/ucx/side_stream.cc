#include "common/transport/ucx/side_stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace quarry::transport::ucx {

SideStream::SideStream(UniqueFd fd, EventLoop* loop, std::function<void(const Greeting&)> on_greeting,
                       std::function<void(absl::Status)> on_broken)
    : fd_(std::move(fd)), loop_(loop), on_greeting_(std::move(on_greeting)), on_broken_(std::move(on_broken)) {}

void SideStream::Open() {
  open_ = true;
  loop_->Add(fd_.get(), EPOLLIN, this);
}

void SideStream::Close() {
  if (!std::exchange(open_, false)) return;
  loop_->Remove(fd_.get(), this);
  fd_ = UniqueFd();
}

void SideStream::Send(const Greeting& greeting) {
  const std::string out = EncodeGreeting(greeting);
  if (send(fd_.get(), out.data(), out.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(out.size())) {
    Break(ErrnoStatus(errno, "send"));
  }
}

void SideStream::OnEvents(uint32_t) {
  if (absl::Status status = Receive(); !status.ok()) Break(std::move(status));
}

absl::Status SideStream::Receive() {
  char buffer[kMaxGreetingBytes];
  const ssize_t got = recv(fd_.get(), buffer, sizeof buffer, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
  if (got < 0) return ErrnoStatus(errno, "recv");
  if (got == 0) return absl::UnavailableError("the peer has closed the connection");
  if (!on_greeting_) return absl::InvalidArgumentError("more was sent than a greeting");
  in_.append(buffer, static_cast<size_t>(got));
  if (in_.size() < kGreetingPrefixBytes) return absl::OkStatus();
  const auto bytes = GreetingBytes(in_);
  if (!bytes.ok()) return bytes.status();
  if (in_.size() < *bytes) return absl::OkStatus();
  if (in_.size() > *bytes) return absl::InvalidArgumentError("more was sent than a greeting");
  const auto greeting = DecodeGreeting(in_);
  if (!greeting.ok()) return greeting.status();
  std::exchange(on_greeting_, nullptr)(*greeting);
  return absl::OkStatus();
}

void SideStream::Break(absl::Status status) {
  if (!open_) return;
  Close();
  on_broken_(std::move(status));
}

}  // namespace quarry::transport::ucx
