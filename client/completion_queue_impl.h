// The queue behind CompletionQueue. Operations share it, so it lives as long as the last
// of them whatever its user does.
#ifndef QUARRY_CLIENT_COMPLETION_QUEUE_IMPL_H_
#define QUARRY_CLIENT_COMPLETION_QUEUE_IMPL_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "common/net/socket.h"
#include "quarry/completion_queue.h"

namespace quarry {

// Thread-safe.
struct CompletionQueue::Impl {
  enum class Wakeup : uint8_t {
    kEventFd,   // for poll and epoll as well
    kWaitOnly,  // for the blocking calls: no descriptor
  };
  explicit Impl(Wakeup wakeup);

  void Push(Completion completion);
  std::optional<Completion> TryNext();
  // Negative: without limit.
  std::optional<Completion> Next(int64_t timeout_ms);
  int fd() const { return event_fd_.get(); }

 private:
  std::optional<Completion> PopLocked();

  UniqueFd event_fd_;  // readable exactly while completions_ is not empty
  std::mutex mutex_;
  std::condition_variable not_empty_;
  std::deque<Completion> completions_;  // guarded by mutex_
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_COMPLETION_QUEUE_IMPL_H_
