#include "tools/bench/latencies.h"

#include <algorithm>
#include <cmath>

namespace quarry::bench {

void Latencies::Add(int64_t ns) {
  ++count_;
  if (samples_.size() < kMaxSamples) {
    samples_.push_back(ns);
    return;
  }
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const uint64_t place = random_ % count_;
  if (place < kMaxSamples) samples_[place] = ns;
}

void Latencies::Merge(const Latencies& other) {
  const uint64_t total = count_ + other.count_;
  for (int64_t ns : other.samples_) Add(ns);
  count_ = total;
}

double Latencies::PercentileUs(double share) const {
  if (samples_.empty()) return 0;
  std::vector<int64_t> sorted = samples_;
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  const size_t index = std::min(sorted.size() - 1, rank < 1 ? 0 : static_cast<size_t>(rank) - 1);
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(index), sorted.end());
  return static_cast<double>(sorted[index]) / 1e3;
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace quarry::bench
