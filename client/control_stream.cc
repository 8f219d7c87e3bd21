#include "client/control_stream.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace quarry {
namespace {

// A round trip within a host or a rack, with the server's work for a long prompt.
constexpr int64_t kMostSpinNs = 300'000;

bool IsReadable(int fd) {
  pollfd wanted{fd, POLLIN, 0};
  return poll(&wanted, 1, 0) > 0;
}

// Until the deadline, at most an hour. False: it has passed.
bool WaitReadable(int fd, int64_t deadline_ns) {
  constexpr int64_t kLongestMs = 3'600'000;
  while (true) {
    const int64_t left_ms = (deadline_ns - Clock::Real()->NowNs() + kNsPerMs - 1) / kNsPerMs;
    pollfd wanted{fd, POLLIN, 0};
    const int ready = poll(&wanted, 1, static_cast<int>(std::clamp<int64_t>(left_ms, 0, kLongestMs)));
    if (ready > 0) return true;
    if (ready == 0 && left_ms <= kLongestMs) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

ControlStream::ControlStream(UniqueFd fd, EventLoop* loop, Listener* listener)
    : fd_(std::move(fd)), loop_(loop), listener_(listener), spin_(kMostSpinNs) {}

void ControlStream::Start() {
  std::lock_guard lock(mutex_);
  state_ = State::kRunning;
  loop_->Add(fd_.get(), WantedEventsLocked(), this);
}

void ControlStream::Stop() {
  std::lock_guard lock(mutex_);
  if (state_ == State::kRunning) loop_->Remove(fd_.get(), this);
  state_ = State::kStopped;
  // The peer must learn of it even while a forked child holds the descriptor as well; and so
  // must whoever has the turn to read.
  shutdown(fd_.get(), SHUT_RDWR);
}

bool ControlStream::running() const {
  std::lock_guard lock(mutex_);
  return state_ == State::kRunning;
}

size_t ControlStream::outgoing_bytes() const {
  std::lock_guard lock(mutex_);
  return outgoing_.size() - flushed_;
}

uint32_t ControlStream::WantedEventsLocked() const {
  // EPOLLET alone: what is reported without being asked for, an end, is reported once.
  const uint32_t reading = loop_reads_ ? EPOLLIN : EPOLLET;
  return reading | (outgoing_.empty() ? 0u : EPOLLOUT);
}

void ControlStream::UpdateEventsLocked() {
  if (state_ == State::kRunning) loop_->Modify(fd_.get(), WantedEventsLocked(), this);
}

size_t ControlStream::TrySendLocked(absl::string_view data) {
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
  std::lock_guard lock(mutex_);
  if (outgoing_.empty()) framed.remove_prefix(TrySendLocked(framed));
  if (framed.empty() || write_failed_) return;
  const bool armed = !outgoing_.empty();
  outgoing_.append(framed.data(), framed.size());
  if (!armed) UpdateEventsLocked();
}

void ControlStream::Flush() {
  std::lock_guard lock(mutex_);
  if (outgoing_.empty()) return;
  flushed_ += TrySendLocked(absl::string_view(outgoing_).substr(flushed_));
  if (flushed_ < outgoing_.size() && !write_failed_) return;
  outgoing_.clear();
  outgoing_.shrink_to_fit();
  flushed_ = 0;
  UpdateEventsLocked();
}

void ControlStream::OnEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) Flush();
  if ((events & ~uint32_t{EPOLLOUT}) != 0) Receive();
}

void ControlStream::Receive() {
  // Whoever has the turn hands on what it leaves.
  std::unique_lock reading(read_mutex_, std::try_to_lock);
  if (!reading.owns_lock()) return;
  absl::Status status = incoming_.Fill(fd_.get());
  absl::string_view message;
  while (status.ok() && incoming_.Next(&message, &status)) {
    listener_->OnControlMessage(message);
    if (!running()) return;
  }
  if (!status.ok())
    Break(absl::UnavailableError(absl::StrCat("control stream: ", absl::string_view(status.message()))));
}

ControlStream::Turn ControlStream::TakeTurn() {
  if (!read_mutex_.try_lock()) return Turn();
  Turn turn(this);
  std::lock_guard lock(mutex_);
  loop_reads_ = false;
  UpdateEventsLocked();
  return turn;
}

bool ControlStream::AwaitReadable(int64_t deadline_ns) {
  bool readable = false;
  spin_.Wait(
      deadline_ns - Clock::Real()->NowNs(), [&] { return readable = IsReadable(fd_.get()); },
      [&] { readable = WaitReadable(fd_.get(), deadline_ns); });
  return readable;
}

std::optional<absl::string_view> ControlStream::Turn::Next(int64_t deadline_ns) {
  absl::Status status;
  absl::string_view message;
  while (!stream_->incoming_.Next(&message, &status)) {
    if (!status.ok() || !stream_->AwaitReadable(deadline_ns)) return std::nullopt;
    if (status = stream_->incoming_.Fill(stream_->fd_.get()); !status.ok()) return std::nullopt;
  }
  return message;
}

ControlStream::Turn::~Turn() {
  if (stream_ != nullptr) stream_->EndTurn();
}

void ControlStream::EndTurn() {
  const bool left = !incoming_.empty();
  {
    std::lock_guard lock(mutex_);
    loop_reads_ = true;
    UpdateEventsLocked();
  }
  read_mutex_.unlock();
  if (!left) return;
  loop_->Post([self = shared_from_this()] {
    if (self->running()) self->Receive();
  });
}

void ControlStream::Break(absl::Status why) {
  Stop();
  listener_->OnControlBroken(std::move(why));
}

}  // namespace quarry
