// How much may be written to the SSDs, whose cells wear out.
#ifndef QUARRY_SERVER_SSD_WRITE_BUDGET_H_
#define QUARRY_SERVER_SSD_WRITE_BUDGET_H_

#include <algorithm>
#include <cstdint>

#include "common/clock.h"

namespace quarry::server {

// A token bucket: so many bytes a day, evenly, of which as many as `burst_bytes` may be saved
// up. One thread.
class WriteBudget {
 public:
  // Blocks that may be written: all; or, when less than half of the burst is left, those that
  // were used since they were stored, which is what makes the bytes last; or none.
  enum class Admits : uint8_t { kAll, kUsed, kNone };

  // bytes_per_day 0: without a bound.
  WriteBudget(uint64_t bytes_per_day, uint64_t burst_bytes, Clock* clock)
      : bytes_per_day_(static_cast<double>(bytes_per_day)),
        burst_bytes_(static_cast<double>(burst_bytes)),
        clock_(clock),
        left_bytes_(burst_bytes_),
        as_of_ns_(clock->NowNs()) {}

  void Spend(uint64_t bytes) { left_bytes_ -= static_cast<double>(bytes); }

  Admits Now() {
    if (bytes_per_day_ == 0) return Admits::kAll;
    constexpr double kDayNs = 86400e9;
    const int64_t now_ns = clock_->NowNs();
    const double earned_bytes = static_cast<double>(now_ns - as_of_ns_) / kDayNs * bytes_per_day_;
    as_of_ns_ = now_ns;
    left_bytes_ = std::min(left_bytes_ + earned_bytes, burst_bytes_);
    if (left_bytes_ <= 0) return Admits::kNone;
    return left_bytes_ < burst_bytes_ / 2 ? Admits::kUsed : Admits::kAll;
  }

 private:
  const double bytes_per_day_;
  const double burst_bytes_;
  Clock* const clock_;
  double left_bytes_;  // below 0: what was written beyond it is made up for first
  int64_t as_of_ns_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_WRITE_BUDGET_H_
