// What all streaming calls together may hold of the node.
#ifndef QUARRY_SERVER_GRPC_STREAM_LIMITS_H_
#define QUARRY_SERVER_GRPC_STREAM_LIMITS_H_

#include <atomic>
#include <cstdint>

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

  uint64_t most() const { return most_; }

 private:
  const uint64_t most_;
  std::atomic<uint64_t> taken_{0};
};

struct StreamLimits {
  static constexpr uint64_t kMaxStreams = 1024;

  explicit StreamLimits(uint64_t arena_bytes) : put_bytes(arena_bytes / 8) {}

  Quota gets{kMaxStreams};
  Quota puts{kMaxStreams};
  Quota watches{kMaxStreams};
  // Slots that puts have reserved and not filled: a stalled client keeps one.
  Quota put_bytes;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_GRPC_STREAM_LIMITS_H_
