#include "common/transport/shm/stream.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace quarry::transport::shm {
namespace {

constexpr size_t kMaxFdsAtOnce = 4;

}  // namespace

ssize_t SendWithFds(int socket, absl::string_view bytes, const std::vector<UniqueFd>& fds) {
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  int numbers[kMaxFdsAtOnce];
  const size_t count = std::min(fds.size(), kMaxFdsAtOnce);
  for (size_t i = 0; i < count; ++i) numbers[i] = fds[i].get();
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof numbers)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    std::memcpy(control + CMSG_LEN(0), numbers, sizeof(int) * count);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL);
}

Stream::Stream(UniqueFd fd, EventLoop* loop, MessageSink* sink) : fd_(std::move(fd)), loop_(loop), sink_(sink) {}

Stream::~Stream() { Close(); }

void Stream::Open() {
  open_ = true;
  loop_->Add(fd_.get(), EPOLLIN, this);
  Flush();
}

void Stream::Close() {
  if (!std::exchange(open_, false)) return;
  loop_->Remove(fd_.get(), this);
  fd_ = UniqueFd();
  fds_.clear();
  out_.clear();
  unsent_bytes_ = 0;
}

void Stream::Break(const absl::Status& status) {
  if (!open_) return;
  Close();
  sink_->OnStreamBroken(status);
}

void Stream::OnEvents(uint32_t events) {
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    if (absl::Status status = Receive(); !status.ok()) {
      Break(status);
      return;
    }
    if (open_) sink_->OnRoundEnd();
  }
  if (!open_) return;
  const bool was_full = unsent_bytes_ > 0;
  Flush();
  if (open_ && was_full && unsent_bytes_ == 0) sink_->OnDrained();
}

absl::Status Stream::Receive() {
  const size_t had = in_.size();
  in_.resize(had + kReadBytes);
  iovec piece{in_.data() + had, kReadBytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFdsAtOnce)];
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  const int error = errno;
  in_.resize(had + static_cast<size_t>(got > 0 ? got : 0));
  if (got < 0) return error == EAGAIN || error == EINTR ? absl::OkStatus() : ErrnoStatus(error, "recvmsg");
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= header->cmsg_len; at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, reinterpret_cast<char*>(header) + at, sizeof fd);
      fds_.emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0 || fds_.size() > kMaxWaitingFds) {
    return absl::InvalidArgumentError("the peer sends descriptors that nothing is said about, or none could be taken");
  }
  if (got == 0) return absl::UnavailableError("the peer closed the data stream");
  return HandOver();
}

absl::Status Stream::HandOver() {
  while (open_ && in_.size() - in_begin_ >= kHeaderBytes) {
    Message message;
    size_t body_bytes = 0;
    absl::Status status = DecodeMessageHeader(in_.data() + in_begin_, &message, &body_bytes);
    if (!status.ok()) return status;
    if (in_.size() - in_begin_ < kHeaderBytes + body_bytes) break;
    message.body = absl::string_view(in_).substr(in_begin_ + kHeaderBytes, body_bytes);
    in_begin_ += kHeaderBytes + body_bytes;
    if (status = sink_->OnMessage(message, &fds_); !status.ok()) return status;
  }
  in_.erase(0, std::exchange(in_begin_, 0));
  return absl::OkStatus();
}

void Stream::Send(const Message& message, std::vector<UniqueFd> fds) {
  // What carries descriptors begins a write of its own.
  if (out_.empty() || !fds.empty()) out_.push_back({{}, 0, std::move(fds)});
  const size_t before = out_.back().bytes.size();
  AppendMessage(message, &out_.back().bytes);
  unsent_bytes_ += out_.back().bytes.size() - before;
}

void Stream::Flush() {
  if (!open_) return;
  while (!out_.empty()) {
    Outgoing& front = out_.front();
    const ssize_t sent = SendWithFds(fd_.get(), absl::string_view(front.bytes).substr(front.sent), front.fds);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) break;
      Break(ErrnoStatus(errno, "sendmsg"));
      return;
    }
    front.fds.clear();
    front.sent += static_cast<size_t>(sent);
    unsent_bytes_ -= static_cast<size_t>(sent);
    if (front.sent == front.bytes.size()) out_.pop_front();
  }
  const bool want_writable = !out_.empty();
  if (want_writable != writable_armed_) {
    writable_armed_ = want_writable;
    loop_->Modify(fd_.get(), EPOLLIN | (want_writable ? EPOLLOUT : 0u), this);
  }
}

}  // namespace quarry::transport::shm
