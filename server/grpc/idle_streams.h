// Ends streaming calls whose client has stopped doing its part.
#ifndef QUARRY_SERVER_GRPC_IDLE_STREAMS_H_
#define QUARRY_SERVER_GRPC_IDLE_STREAMS_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"

namespace quarry::server {

// A client without a deadline that stalls would keep what its call holds for ever: a slot,
// a shard that others wait for. Thread-safe; outlives its streams.
class IdleStreams {
 public:
  // The part of one call, as a member of its reactor.
  class Stream {
   public:
    // `context` outlives it.
    Stream(IdleStreams* all, grpc::CallbackServerContext* context);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // From here to EndWait it is the client's turn: to send a message, or to take one.
    void BeginWait(int64_t now_ns) { waits_since_ns_.store(now_ns, std::memory_order_release); }
    void EndWait() { waits_since_ns_.store(kNotWaiting, std::memory_order_release); }

    // Why the call is over before its end: DeadlineExceeded when it was idle, else Cancelled.
    absl::Status WhyCancelled() const;

   private:
    friend class IdleStreams;
    static constexpr int64_t kNotWaiting = INT64_MAX;

    IdleStreams* const all_;
    grpc_call* const call_;
    std::atomic<int64_t> waits_since_ns_{kNotWaiting};
    std::atomic<bool> ended_{false};
  };

  // `limit_ns`: how long a client may take for its turn.
  explicit IdleStreams(int64_t limit_ns);

  // Ends the calls that are beyond the limit: their clients get DEADLINE_EXCEEDED at once,
  // ahead of payload that they do not take, and their reactors are told of a cancelled call,
  // perhaps on this thread. Called every few tens of milliseconds.
  void EndIdle(int64_t now_ns);

 private:
  std::vector<grpc_call*> TakeIdle(int64_t now_ns);

  const int64_t limit_ns_;
  const std::string message_;
  std::mutex mutex_;
  std::unordered_set<Stream*> streams_;  // guarded by mutex_
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_IDLE_STREAMS_H_
