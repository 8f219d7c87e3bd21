// Latency samples and their percentiles.
#ifndef QUARRY_TOOLS_BENCH_LATENCIES_H_
#define QUARRY_TOOLS_BENCH_LATENCIES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quarry::bench {

// Keeps every sample up to a bound and from there on a uniform choice of all that came
// (reservoir sampling). Not thread-safe: one a thread, then Merge.
class Latencies {
 public:
  static constexpr size_t kMaxSamples = 1 << 20;

  void Add(int64_t ns);
  void Merge(const Latencies& other);
  uint64_t count() const { return count_; }
  // Nearest rank; share in [0, 1]. 0 when there are no samples.
  double PercentileUs(double share) const;

 private:
  uint64_t count_ = 0;
  uint64_t random_ = 0x9E3779B97F4A7C15u;
  std::vector<int64_t> samples_;
};

double Median(std::vector<double> values);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_LATENCIES_H_
