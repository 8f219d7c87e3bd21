// What all streaming calls together may hold of the node.
#ifndef QUARRY_SERVER_GRPC_STREAM_LIMITS_H_
#define QUARRY_SERVER_GRPC_STREAM_LIMITS_H_

#include <atomic>
#include <cstdint>

#include "server/grpc/idle_streams.h"

namespace quarry::server {

// Thread-safe counters with a bound.
class Quota {
 public:
  explicit Quota(uint64_t most) : most_(most) {}

  // False, and nothing is taken: it would be too much. One taker always gets in, however
  // large.
  bool Take(uint64_t amount) {
    uint64_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (taken != 0 && taken + amount > most_) return false;
    } while (!taken_.compare_exchange_weak(taken, taken + amount, std::memory_order_relaxed));
    return true;
  }
  void Give(uint64_t amount) { taken_.fetch_sub(amount, std::memory_order_relaxed); }

  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  uint64_t most() const { return most_; }

 private:
  const uint64_t most_;
  std::atomic<uint64_t> taken_{0};
};

struct StreamLimits {
  static constexpr uint64_t kMaxStreams = 1024;

  StreamLimits(uint64_t arena_bytes, int64_t idle_limit_ns) : put_bytes(arena_bytes / 8), idle(idle_limit_ns) {}

  Quota gets{kMaxStreams};
  Quota puts{kMaxStreams};
  Quota watches{kMaxStreams};
  // Slots that puts have reserved and not filled: a stalled client keeps one until it is
  // found idle.
  Quota put_bytes;
  // Gets and puts. A watch may be quiet for as long as nothing happens.
  IdleStreams idle;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_STREAM_LIMITS_H_
