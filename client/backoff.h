// How long to wait before the next attempt to connect.
#ifndef QUARRY_CLIENT_BACKOFF_H_
#define QUARRY_CLIENT_BACKOFF_H_

#include <cstdint>
#include <functional>

namespace quarry {

// The n-th wait (n = 0, 1, ..) is uniformly random between min and min * 2^(n+1), at most
// max: clients that lost the same node come back spread out. Not thread-safe.
class Backoff {
 public:
  // `random` returns numbers in [0, 1).
  Backoff(uint32_t min_ms, uint32_t max_ms, std::function<double()> random);

  uint32_t NextMs();
  void Reset() { ceiling_ms_ = min_ms_; }

 private:
  const uint32_t min_ms_;
  const uint32_t max_ms_;
  std::function<double()> random_;
  uint64_t ceiling_ms_;
};

// Uniform in [0, 1), from the kernel's generator.
double SecureRandomFraction();

}  // namespace quarry

#endif  // QUARRY_CLIENT_BACKOFF_H_
