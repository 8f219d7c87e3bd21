#include "client/gpu_ranges.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quarry {
namespace {

bool BaseBefore(const GpuRange& range, const std::byte* base) { return range.range.base < base; }

std::string PlaceName(int gpu) { return gpu < 0 ? "host memory" : absl::StrCat("memory of GPU ", gpu); }

}  // namespace

void GpuRanges::Add(MemoryRange range, int gpu) {
  std::lock_guard lock(mutex_);
  auto changed = std::make_shared<Ranges>(*ranges_);
  changed->insert(std::lower_bound(changed->begin(), changed->end(), range.base, BaseBefore), {range, gpu});
  ranges_ = std::move(changed);
  empty_.store(false, std::memory_order_release);
}

void GpuRanges::Remove(MemoryRange range) {
  std::lock_guard lock(mutex_);
  auto changed = std::make_shared<Ranges>(*ranges_);
  const auto found = std::lower_bound(changed->begin(), changed->end(), range.base, BaseBefore);
  if (found == changed->end() || found->range.base != range.base) return;
  changed->erase(found);
  empty_.store(changed->empty(), std::memory_order_release);
  ranges_ = std::move(changed);
}

bool GpuRanges::Has(MemoryRange range) const {
  const auto ranges = Snapshot();
  const auto found = std::lower_bound(ranges->begin(), ranges->end(), range.base, BaseBefore);
  return found != ranges->end() && found->range.base == range.base;
}

std::shared_ptr<const GpuRanges::Ranges> GpuRanges::Snapshot() const {
  std::lock_guard lock(mutex_);
  return ranges_;
}

const GpuRange* GpuFinder::RangeOf(const std::byte* base) const {
  auto after = std::upper_bound(ranges_->begin(), ranges_->end(), base,
                                [](const std::byte* address, const GpuRange& r) { return address < r.range.base; });
  if (after == ranges_->begin()) return nullptr;
  --after;
  return base < after->range.base + after->range.bytes ? &*after : nullptr;
}

bool GpuFinder::AllAt(const Segment& segment, int* place) const {
  const GpuRange* first = RangeOf(segment.base);
  *place = first == nullptr ? kHost : first->gpu;
  // Ranges are disjoint: with both ends in one, so is what lies between.
  if (first != nullptr && RangeOf(segment.base + (segment.count - 1) * segment.stride) == first) return true;
  for (size_t piece = 1; piece < segment.count; ++piece) {
    const GpuRange* range = RangeOf(segment.base + piece * segment.stride);
    if ((range == nullptr ? kHost : range->gpu) != *place) return false;
  }
  return true;
}

absl::Status GpuFinder::Add(const SegmentList& segments, absl::FunctionRef<std::string()> name) {
  for (size_t i = 0; i < segments.size(); ++i) {
    int place = kHost;
    const bool one = AllAt(segments[i], &place);
    if (place_ == kNothingYet) place_ = place;
    if (one && place == place_) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name(), ".segments[", i, "]: lies elsewhere than ", PlaceName(place_),
                     ", where the first segment of the operation lies; all of them must be in host memory or in "
                     "that of one GPU"));
  }
  return absl::OkStatus();
}

}  // namespace quarry
