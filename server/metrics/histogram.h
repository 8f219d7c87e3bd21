// Counts values in buckets of fixed bounds, for Prometheus histograms.
#ifndef QUARRY_SERVER_METRICS_HISTOGRAM_H_
#define QUARRY_SERVER_METRICS_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace quarry::server {

// In base units, as it is exported.
struct HistogramSnapshot {
  std::vector<double> upper_bounds;  // ascending; the last is infinity
  std::vector<uint64_t> counts;      // per bucket, not cumulative
  double sum = 0;
};

// `Buckets` has kUpperBounds, ascending, of values as they are recorded, and kPerUnit, how many
// of these make one base unit. Thread-safe; recording costs two atomic additions.
template <typename Buckets>
class Histogram {
 public:
  static constexpr size_t kBuckets = Buckets::kUpperBounds.size() + 1;

  // Negative counts as 0.
  void Record(int64_t value) {
    value = std::max<int64_t>(value, 0);
    const auto& bounds = Buckets::kUpperBounds;
    const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
    counts_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(static_cast<uint64_t>(value), std::memory_order_relaxed);
  }

  HistogramSnapshot snapshot() const {
    HistogramSnapshot snapshot;
    // Divided, not multiplied by a fraction that is no binary number: so each bound is the
    // double nearest to its decimal number, and prints as that.
    const auto in_units = [](double value) { return value / Buckets::kPerUnit; };
    for (const int64_t bound : Buckets::kUpperBounds)
      snapshot.upper_bounds.push_back(in_units(static_cast<double>(bound)));
    snapshot.upper_bounds.push_back(std::numeric_limits<double>::infinity());
    for (const auto& count : counts_) snapshot.counts.push_back(count.load(std::memory_order_relaxed));
    snapshot.sum = in_units(static_cast<double>(sum()));
    return snapshot;
  }
  // Of the values as recorded.
  uint64_t sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kBuckets> counts_{};
  std::atomic<uint64_t> sum_{0};
};

// Nanoseconds, exported in seconds: 1, 2, 5, 10, .. us to 100 s.
struct LatencyBuckets {
  static constexpr std::array<int64_t, 25> kUpperBounds = [] {
    std::array<int64_t, 25> bounds{};
    int64_t decade = 1'000;
    for (size_t i = 0; i < bounds.size(); ++i) {
      constexpr int64_t kSteps[] = {1, 2, 5};
      bounds[i] = kSteps[i % 3] * decade;
      if (i % 3 == 2) decade *= 10;
    }
    return bounds;
  }();
  static constexpr double kPerUnit = 1e9;
};
using LatencyHistogram = Histogram<LatencyBuckets>;

// Bytes: 4 KiB, 8 KiB, .. to 64 MiB, the largest shard.
struct SizeBuckets {
  static constexpr std::array<int64_t, 15> kUpperBounds = [] {
    std::array<int64_t, 15> bounds{};
    for (size_t i = 0; i < bounds.size(); ++i) bounds[i] = int64_t{4096} << i;
    return bounds;
  }();
  static constexpr double kPerUnit = 1;
};
using SizeHistogram = Histogram<SizeBuckets>;

}  // namespace quarry::server

#endif  // QUARRY_SERVER_METRICS_HISTOGRAM_H_
