#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "client/completion_queue_impl.h"

namespace quarry {
namespace {

// Longer waits are as good as endless, and adding them to the clock must not overflow.
constexpr int64_t kLongestWaitMs = int64_t{1000} * 60 * 60 * 24 * 365;

}  // namespace

CompletionQueue::Impl::Impl(Wakeup wakeup) {
  if (wakeup == Wakeup::kEventFd) event_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

void CompletionQueue::Impl::Push(Completion completion) {
  {
    std::lock_guard lock(mutex_);
    // Under the lock, so that it cannot overtake the read of whoever takes the last one.
    if (completions_.empty() && event_fd_) {
      const uint64_t one = 1;
      // Cannot block: the counter is 0 while the queue is empty.
      [[maybe_unused]] ssize_t written = write(event_fd_.get(), &one, sizeof one);
    }
    completions_.push_back(std::move(completion));
  }
  not_empty_.notify_one();
}

std::optional<Completion> CompletionQueue::Impl::PopLocked() {
  if (completions_.empty()) return std::nullopt;
  std::optional<Completion> first(std::move(completions_.front()));
  completions_.pop_front();
  if (completions_.empty() && event_fd_) {
    uint64_t drained;
    [[maybe_unused]] ssize_t got = read(event_fd_.get(), &drained, sizeof drained);
  }
  return first;
}

std::optional<Completion> CompletionQueue::Impl::TryNext() {
  std::lock_guard lock(mutex_);
  return PopLocked();
}

std::optional<Completion> CompletionQueue::Impl::Next(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return !completions_.empty(); };
  if (timeout_ms < 0) {
    not_empty_.wait(lock, ready);
  } else {
    not_empty_.wait_for(lock, std::chrono::milliseconds(std::min(timeout_ms, kLongestWaitMs)), ready);
  }
  return PopLocked();
}

CompletionQueue::CompletionQueue() : impl_(std::make_shared<Impl>(Impl::Wakeup::kEventFd)) {}
CompletionQueue::~CompletionQueue() = default;

int CompletionQueue::fd() const { return impl_->fd(); }
std::optional<Completion> CompletionQueue::TryNext() { return impl_->TryNext(); }
std::optional<Completion> CompletionQueue::Next(int64_t timeout_ms) { return impl_->Next(timeout_ms); }

}  // namespace quarry
