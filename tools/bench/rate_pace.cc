#include "tools/bench/rate_pace.h"

#include <chrono>
#include <thread>

namespace quarry::bench {

void RatePace::Begin(double bytes_per_s) {
  bytes_per_s_ = bytes_per_s;
  begun_ns_ = clock_->NowNs();
  taken_bytes_ = 0;
}

bool RatePace::Take(uint64_t bytes, bool wait) {
  const int64_t due_ns = begun_ns_ + static_cast<int64_t>(static_cast<double>(taken_bytes_) * 1e9 / bytes_per_s_);
  const int64_t early_ns = due_ns - clock_->NowNs();
  if (early_ns > 0) {
    if (!wait) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(early_ns));
  }
  taken_bytes_ += bytes;
  return true;
}

}  // namespace quarry::bench
