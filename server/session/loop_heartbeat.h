// Whether an event loop still comes round.
#ifndef QUARRY_SERVER_SESSION_LOOP_HEARTBEAT_H_
#define QUARRY_SERVER_SESSION_LOOP_HEARTBEAT_H_

#include <atomic>
#include <cstdint>

#include "common/net/event_loop.h"

namespace quarry::server {

class LoopHeartbeat {
 public:
  // Goes after the loop, which may still owe it an answer.
  explicit LoopHeartbeat(EventLoop* loop) : loop_(loop) {}
  LoopHeartbeat(const LoopHeartbeat&) = delete;
  LoopHeartbeat& operator=(const LoopHeartbeat&) = delete;

  // How long the loop has owed an answer to an earlier call; 0 when it owes none, and then
  // it is asked for one. One thread at a time.
  int64_t Beat(int64_t now_ns) {
    const int64_t asked_ns = asked_ns_.load(std::memory_order_acquire);
    if (asked_ns != kAnswered) return now_ns - asked_ns;
    asked_ns_.store(now_ns, std::memory_order_release);
    loop_->Post([this] { asked_ns_.store(kAnswered, std::memory_order_release); });
    return 0;
  }

 private:
  static constexpr int64_t kAnswered = INT64_MIN;

  EventLoop* const loop_;
  std::atomic<int64_t> asked_ns_{kAnswered};
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SESSION_LOOP_HEARTBEAT_H_
