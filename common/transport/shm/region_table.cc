#include "common/transport/shm/region_table.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::transport::shm {

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
  if (place != nullptr && place->key() == key) removed = std::move(place);
}

std::shared_ptr<Region> RegionTable::Find(uint32_t key) const {
  std::lock_guard lock(mutex_);
  const std::shared_ptr<Region>& place = regions_[RegionSlotOf(key)];
  return place != nullptr && place->key() == key ? place : nullptr;
}

}  // namespace quarry::transport::shm
