#include "server/ssd/extent_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/ssd/record_table.h"

namespace quarry::server {
namespace {

// A sealed extent with less than this share of live bytes is emptied before older ones: what
// is left in it costs little to move.
constexpr uint64_t kNearlyEmptyShare = 8;
// Room for the numbers of a larger set that was here before.
constexpr uint64_t kMinNumbers = 1 << 16;

}  // namespace

ExtentSet::ExtentSet(std::unique_ptr<ExtentFiles> files, uint64_t max_bytes, uint64_t extent_bytes)
    : files_(std::move(files)),
      max_bytes_(max_bytes),
      extent_bytes_(extent_bytes),
      max_numbers_(static_cast<uint32_t>(
          std::clamp<uint64_t>(2 * (max_bytes / extent_bytes), kMinNumbers, RecordPlace::kMaxExtents))),
      by_number_(new std::atomic<Extent*>[max_numbers_] {}) {}

void ExtentSet::AddLocked(std::unique_ptr<Extent> extent) {
  bytes_ += extent->bytes;
  by_number_[extent->number].store(extent.get(), std::memory_order_release);
  extents_[extent->number] = std::move(extent);
}

absl::StatusOr<Extent*> ExtentSet::Restore(uint32_t number, uint64_t generation, uint64_t file_bytes) {
  if (number >= max_numbers_) {
    return absl::OutOfRangeError(absl::StrCat("extent ", number, ": not below ", max_numbers_));
  }
  auto extent = std::make_unique<Extent>();
  extent->number = number;
  extent->generation = generation;
  extent->inlined = file_bytes == 0;
  extent->bytes = extent->inlined ? extent_bytes_ : file_bytes;
  extent->state = Extent::State::kSealed;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!extent->inlined) {
    absl::StatusOr<UniqueFd> fd = files_->Open(number);
    if (!fd.ok()) return fd.status();
    extent->fd = *std::move(fd);
  }
  generation_ = std::max(generation_, generation);
  AddLocked(std::move(extent));
  return Find(number);
}

absl::Status ExtentSet::Discard(uint32_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  return DiscardLocked(number);
}

absl::Status ExtentSet::DiscardLocked(uint32_t number) {
  const auto it = extents_.find(number);
  if (it == extents_.end()) return absl::OkStatus();
  bytes_ -= it->second->bytes;
  const bool inlined = it->second->inlined;
  by_number_[number].store(nullptr, std::memory_order_release);
  extents_.erase(it);
  return inlined ? absl::OkStatus() : files_->Remove(number);
}

absl::Status ExtentSet::RemoveStrays() {
  std::lock_guard<std::mutex> lock(mutex_);
  absl::StatusOr<std::vector<ExtentFiles::Found>> found = files_->List();
  if (!found.ok()) return found.status();
  for (const ExtentFiles::Found& file : *found) {
    if (extents_.count(file.number) != 0) continue;
    if (absl::Status status = files_->Remove(file.number); !status.ok()) return status;
  }
  return absl::OkStatus();
}

uint32_t ExtentSet::NewNumberLocked() const {
  uint32_t number = 1;
  for (const auto& [taken, extent] : extents_) {
    if (taken != number) break;
    ++number;
  }
  return number;
}

uint32_t ExtentSet::FreeLocked() const {
  uint64_t count = (std::max(max_bytes_, bytes_) - bytes_) / extent_bytes_;
  for (const auto& [number, extent] : extents_) {
    if (extent->state == Extent::State::kFree) ++count;
  }
  return static_cast<uint32_t>(count);
}

uint32_t ExtentSet::free() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return FreeLocked();
}

absl::StatusOr<Extent*> ExtentSet::Take(bool inlined, uint32_t spare, uint32_t now) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (FreeLocked() <= spare) return nullptr;
  Extent* taken = nullptr;
  Extent* other_kind = nullptr;
  for (const auto& [number, extent] : extents_) {
    if (extent->state != Extent::State::kFree) continue;
    (extent->inlined == inlined ? taken : other_kind) = extent.get();
  }
  if (taken == nullptr) {
    if (bytes_ + extent_bytes_ > max_bytes_) {
      // One of the other kind gives its bytes.
      if (absl::Status status = DiscardLocked(other_kind->number); !status.ok()) return status;
    }
    auto extent = std::make_unique<Extent>();
    extent->number = NewNumberLocked();
    extent->inlined = inlined;
    extent->bytes = extent_bytes_;
    if (!inlined) {
      absl::StatusOr<UniqueFd> fd = files_->Create(extent->number, extent_bytes_);
      if (!fd.ok()) return fd.status();
      extent->fd = *std::move(fd);
    }
    taken = extent.get();
    AddLocked(std::move(extent));
  }
  taken->state = Extent::State::kActive;
  taken->generation = ++generation_;
  taken->end = 0;
  taken->next_page = 0;
  taken->began_at = now;
  changed_.notify_all();
  return taken;
}

Extent* ExtentSet::TakeRestored(bool inlined) {
  std::lock_guard<std::mutex> lock(mutex_);
  Extent* newest = nullptr;
  for (const auto& [number, extent] : extents_) {
    if (newest == nullptr || extent->generation > newest->generation) newest = extent.get();
  }
  if (newest == nullptr || newest->inlined != inlined || newest->end >= newest->bytes) return nullptr;
  newest->state = Extent::State::kActive;
  return newest;
}

void ExtentSet::Seal(Extent* extent) {
  std::lock_guard<std::mutex> lock(mutex_);
  extent->state = Extent::State::kSealed;
  changed_.notify_all();
}

void ExtentSet::Release(Extent* extent) {
  std::lock_guard<std::mutex> lock(mutex_);
  extent->state = Extent::State::kFree;
  if (extent->bad || bytes_ > max_bytes_ || extent->bytes != extent_bytes_) {
    // A file that cannot be removed is found as a stray at the next start.
    DiscardLocked(extent->number).IgnoreError();
  }
  changed_.notify_all();
}

Extent* ExtentSet::TakeVictim() {
  std::lock_guard<std::mutex> lock(mutex_);
  Extent* oldest = nullptr;
  Extent* emptiest = nullptr;
  for (const auto& [number, extent] : extents_) {
    if (extent->state != Extent::State::kSealed) continue;
    if (oldest == nullptr || extent->generation < oldest->generation) oldest = extent.get();
    if (emptiest == nullptr || extent->live_bytes < emptiest->live_bytes) emptiest = extent.get();
  }
  Extent* victim = oldest;
  if (emptiest != nullptr && emptiest->live_bytes < emptiest->bytes / kNearlyEmptyShare) victim = emptiest;
  if (victim != nullptr) victim->state = Extent::State::kReclaiming;
  return victim;
}

void ExtentSet::WaitForFree(uint32_t spare, std::chrono::milliseconds most) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, most, [&, wakes = wakes_] { return FreeLocked() > spare || wakes_ != wakes; });
}

void ExtentSet::WaitForFewer(uint32_t spare, std::chrono::milliseconds most) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, most, [&, wakes = wakes_] { return FreeLocked() <= spare || wakes_ != wakes; });
}

void ExtentSet::Wake() {
  std::lock_guard<std::mutex> lock(mutex_);
  ++wakes_;
  changed_.notify_all();
}

}  // namespace quarry::server
