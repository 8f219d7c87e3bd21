// Holds puts to a rate.
#ifndef QUARRY_TOOLS_BENCH_RATE_PACE_H_
#define QUARRY_TOOLS_BENCH_RATE_PACE_H_

#include <cstdint>

#include "common/clock.h"

namespace quarry::bench {

// So many bytes a second from Begin on. What was not taken in time is owed, and may be taken at
// once. One thread.
class RatePace {
 public:
  explicit RatePace(Clock* clock) : clock_(clock) {}

  // Nothing is owed yet. `bytes_per_s` is above 0.
  void Begin(double bytes_per_s);
  // Whether the next so many bytes may go now. With `wait` it waits until they may.
  bool Take(uint64_t bytes, bool wait);

 private:
  Clock* const clock_;
  double bytes_per_s_ = 1;
  int64_t begun_ns_ = 0;
  uint64_t taken_bytes_ = 0;
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_RATE_PACE_H_
