#include <bit>
#include <limits>

#include "server/metrics/service_metrics.h"

namespace quarry::server {
namespace {

constexpr int64_t kFirstBoundNs = 1'000;

// The first bucket whose upper bound is not below `ns`.
int BucketOf(int64_t ns) {
  if (ns <= kFirstBoundNs) return 0;
  const auto units = static_cast<uint64_t>((ns - 1) / kFirstBoundNs);
  const int bucket = std::bit_width(units);
  return bucket < LatencyHistogram::kBuckets ? bucket : LatencyHistogram::kBuckets - 1;
}

}  // namespace

void LatencyHistogram::Record(int64_t ns) {
  if (ns < 0) ns = 0;
  counts_[BucketOf(ns)].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(static_cast<uint64_t>(ns), std::memory_order_relaxed);
}

LatencyHistogram::Snapshot LatencyHistogram::snapshot() const {
  Snapshot snapshot;
  for (int i = 0; i < kBuckets; ++i) snapshot.counts[i] = counts_[i].load(std::memory_order_relaxed);
  snapshot.sum_ns = sum_ns_.load(std::memory_order_relaxed);
  return snapshot;
}

double LatencyHistogram::UpperBound(int bucket) {
  if (bucket == kBuckets - 1) return std::numeric_limits<double>::infinity();
  return static_cast<double>(kFirstBoundNs << bucket) * 1e-9;
}

}  // namespace quarry::server
