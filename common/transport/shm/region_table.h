// The regions that a client has registered with this server.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_REGION_TABLE_H_
#define QUARRY_COMMON_TRANSPORT_SHM_REGION_TABLE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/transport/shm/board.h"
#include "common/transport/shm/region.h"

namespace quarry::transport::shm {

// Thread-safe.
class RegionTable {
 public:
  RegionTable() : regions_(kRegionSlots) {}
  // InvalidArgument: the slot of its key is taken.
  absl::Status Add(std::shared_ptr<Region> region);
  void Remove(uint32_t key);
  std::shared_ptr<Region> Find(uint32_t key) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Region>> regions_;  // guarded by mutex_
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_REGION_TABLE_H_
