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

// What a client may have registered at a time: page tables of at most 2 GiB.
inline constexpr uint64_t kMaxRegisteredBytes = uint64_t{1} << 40;

// Thread-safe.
class RegionTable {
 public:
  RegionTable() : regions_(kRegionSlots) {}
  // Before the region is warmed and added: counts its bytes until it is removed, or until Dismiss.
  // ResourceExhausted names the limit.
  absl::Status Admit(uint64_t bytes);
  void Dismiss(uint64_t bytes);
  // InvalidArgument: the slot of its key is taken.
  absl::Status Add(std::shared_ptr<Region> region);
  void Remove(uint32_t key);
  std::shared_ptr<Region> Find(uint32_t key) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Region>> regions_;  // guarded by mutex_
  uint64_t registered_bytes_ = 0;                 // guarded by mutex_
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_REGION_TABLE_H_
