#include "client/memory_registry.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace quarry {
namespace {

bool BaseBefore(const MemoryRange& range, const std::byte* base) { return range.base < base; }

absl::Status CheckShape(const MemoryRange& range) {
  if (range.base == nullptr) return absl::InvalidArgumentError("base: must not be null");
  if (range.bytes == 0) return absl::InvalidArgumentError("bytes: must be at least 1");
  if (range.bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(range.base)) {
    return absl::InvalidArgumentError(absl::StrCat("bytes: ", range.bytes, " reach beyond the address space"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MemoryRegistry::Add(MemoryRange range) {
  if (absl::Status status = CheckShape(range); !status.ok()) return status;
  std::lock_guard lock(mutex_);
  if (ranges_->size() >= kMaxRegisteredRanges) {
    return absl::ResourceExhaustedError(absl::StrCat("at most ", kMaxRegisteredRanges, " memory ranges a client"));
  }
  const auto after = std::lower_bound(ranges_->begin(), ranges_->end(), range.base, BaseBefore);
  const bool overlaps_next = after != ranges_->end() && after->base < range.base + range.bytes;
  const bool overlaps_previous = after != ranges_->begin() && (after - 1)->base + (after - 1)->bytes > range.base;
  if (overlaps_next || overlaps_previous) {
    return absl::InvalidArgumentError("base: the range overlaps one that is registered already");
  }
  auto changed = std::make_shared<Ranges>(*ranges_);
  changed->insert(changed->begin() + (after - ranges_->begin()), range);
  ranges_ = std::move(changed);
  return absl::OkStatus();
}

void MemoryRegistry::Remove(MemoryRange range) {
  std::lock_guard lock(mutex_);
  auto changed = std::make_shared<Ranges>(*ranges_);
  const auto found = std::lower_bound(changed->begin(), changed->end(), range.base, BaseBefore);
  if (found != changed->end() && found->base == range.base) changed->erase(found);
  ranges_ = std::move(changed);
}

std::shared_ptr<const MemoryRegistry::Ranges> MemoryRegistry::Snapshot() const {
  std::lock_guard lock(mutex_);
  return ranges_;
}

}  // namespace quarry
