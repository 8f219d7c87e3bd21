#include "client/reconnector.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "client/signal_blocker.h"
#include "common/clock.h"

namespace quarry {

Reconnector::Reconnector(Backoff backoff, uint32_t stable_ms, std::function<bool()> attempt)
    : backoff_(std::move(backoff)),
      connected_ns_(Clock::Real()->NowNs()),
      stable_ns_(int64_t{stable_ms} * 1'000'000),
      attempt_(std::move(attempt)) {}

void Reconnector::Replace(std::shared_ptr<Session> broken) {
  std::lock_guard lock(mutex_);
  broken_.push_back(std::move(broken));
  if (running_ || stopping_) return;
  // A thread that has set running_ = false needs nothing more, least of all this lock.
  if (thread_.joinable()) thread_.join();
  running_ = true;
  const SignalBlocker blocker;
  thread_ = std::thread([this] { Main(); });
  pthread_setname_np(thread_.native_handle(), "quarry-connect");
}

void Reconnector::Stop() {
  std::thread thread;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    thread = std::move(thread_);
  }
  stop_requested_.notify_all();
  if (thread.joinable()) thread.join();
  DisposeBroken();
}

void Reconnector::DisposeBroken() {
  std::vector<std::shared_ptr<Session>> broken;
  {
    std::lock_guard lock(mutex_);
    broken.swap(broken_);
  }
  for (const auto& session : broken) session->Dispose(absl::UnavailableError("the connection is being replaced"));
}

bool Reconnector::WaitBeforeAttempt() {
  const std::chrono::milliseconds wait(backoff_.NextMs());
  std::unique_lock lock(mutex_);
  return !stop_requested_.wait_for(lock, wait, [this] { return stopping_; });
}

void Reconnector::Main() {
  // A server that accepts and closes at once is not asked faster than one that is away.
  if (Clock::Real()->NowNs() - connected_ns_ >= stable_ns_) backoff_.Reset();
  while (true) {
    DisposeBroken();
    if (!WaitBeforeAttempt()) return;
    if (!attempt_()) continue;
    connected_ns_ = Clock::Real()->NowNs();
    std::lock_guard lock(mutex_);
    // Not when the new one has broken already.
    if (broken_.empty()) {
      running_ = false;
      return;
    }
  }
}

}  // namespace quarry
