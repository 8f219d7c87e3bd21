// Time as an injectable dependency.
#ifndef QUARRY_COMMON_CLOCK_H_
#define QUARRY_COMMON_CLOCK_H_

#include <atomic>
#include <cstdint>

namespace quarry {

inline constexpr int64_t kNsPerUs = 1'000;
inline constexpr int64_t kNsPerMs = 1'000'000;

// Monotonic nanoseconds; the origin means nothing. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNs() const = 0;

  // CLOCK_MONOTONIC.
  static Clock* Real();
};

// Moves only when told. Thread-safe.
class ManualClock : public Clock {
 public:
  int64_t NowNs() const override { return now_ns_.load(std::memory_order_acquire); }
  void AdvanceMs(int64_t ms) { now_ns_.fetch_add(ms * kNsPerMs, std::memory_order_acq_rel); }

 private:
  std::atomic<int64_t> now_ns_{1'000'000'000};
};

}  // namespace quarry

#endif  // QUARRY_COMMON_CLOCK_H_
