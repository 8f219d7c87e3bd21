#include "common/clock.h"

#include <time.h>

namespace quarry {
namespace {

class MonotonicClock : public Clock {
 public:
  int64_t NowNs() const override {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);  // cannot fail for this clock and a valid pointer
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }
};

}  // namespace

Clock* Clock::Real() {
  static MonotonicClock* const clock = new MonotonicClock;  // never destroyed: used until the very end
  return clock;
}

}  // namespace quarry
