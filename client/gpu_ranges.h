// Which of the registered ranges are GPU memory.
#ifndef QUARRY_CLIENT_GPU_RANGES_H_
#define QUARRY_CLIENT_GPU_RANGES_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "quarry/segments.h"

namespace quarry {

struct GpuRange {
  MemoryRange range;
  int gpu = 0;
};

// Thread-safe.
class GpuRanges {
 public:
  using Ranges = std::vector<GpuRange>;  // sorted by base, disjoint

  // Of ranges that a MemoryRegistry has taken.
  void Add(MemoryRange range, int gpu);
  void Remove(MemoryRange range);  // nothing happens when it is none of them
  bool Has(MemoryRange range) const;
  // So that clients without GPU memory do not pay for it.
  bool empty() const { return empty_.load(std::memory_order_acquire); }
  std::shared_ptr<const Ranges> Snapshot() const;

 private:
  std::atomic<bool> empty_{true};
  mutable std::mutex mutex_;
  std::shared_ptr<const Ranges> ranges_ = std::make_shared<Ranges>();  // guarded by mutex_
};

// Whether the items of one operation lie in host memory or in that of one GPU.
class GpuFinder {
 public:
  explicit GpuFinder(const GpuRanges& ranges) : ranges_(ranges.Snapshot()) {}

  // The next item's segments, which lie in registered memory. InvalidArgument: elsewhere than what was
  // added before; `name` is the caller's for the item.
  absl::Status Add(const SegmentList& segments, absl::FunctionRef<std::string()> name);
  // nullopt: host memory.
  std::optional<int> gpu() const { return place_ < 0 ? std::nullopt : std::optional<int>(place_); }

 private:
  static constexpr int kHost = -1;
  static constexpr int kNothingYet = -2;

  const GpuRange* RangeOf(const std::byte* base) const;
  // Reports the place of each piece, or of all at once.
  bool AllAt(const Segment& segment, int* place) const;

  const std::shared_ptr<const GpuRanges::Ranges> ranges_;
  int place_ = kNothingYet;  // or a GPU
};

}  // namespace quarry

#endif  // QUARRY_CLIENT_GPU_RANGES_H_
