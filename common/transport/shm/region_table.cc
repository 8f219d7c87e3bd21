#include "common/transport/shm/region_table.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::transport::shm {

absl::Status RegionTable::Admit(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes > kMaxRegisteredBytes - registered_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("region of ", bytes, " bytes: at most ", kMaxRegisteredBytes,
                                                     " may be registered in a session, and ", registered_bytes_,
                                                     " are"));
  }
  registered_bytes_ += bytes;
  return absl::OkStatus();
}

void RegionTable::Dismiss(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  registered_bytes_ -= bytes;
}

absl::Status RegionTable::Add(std::shared_ptr<Region> region) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Region>& place = regions_[RegionSlotOf(region->key())];
  if (place != nullptr)
    return absl::InvalidArgumentError(absl::StrCat("region ", region->key(), ": its slot is taken"));
  place = std::move(region);
  return absl::OkStatus();
}

void RegionTable::Remove(uint32_t key) {
  std::shared_ptr<Region> removed;  // ends without the lock
  std::lock_guard lock(mutex_);
  std::shared_ptr<Region>& place = regions_[RegionSlotOf(key)];
  if (place == nullptr || place->key() != key) return;
  removed = std::move(place);
  registered_bytes_ -= removed->bytes();
}

std::shared_ptr<Region> RegionTable::Find(uint32_t key) const {
  std::lock_guard lock(mutex_);
  const std::shared_ptr<Region>& place = regions_[RegionSlotOf(key)];
  return place != nullptr && place->key() == key ? place : nullptr;
}

}  // namespace quarry::transport::shm
