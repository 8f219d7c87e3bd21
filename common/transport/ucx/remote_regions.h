// The memory of a client as its server reaches it by RMA.
#ifndef QUARRY_COMMON_TRANSPORT_UCX_REMOTE_REGIONS_H_
#define QUARRY_COMMON_TRANSPORT_UCX_REMOTE_REGIONS_H_

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/transport/descriptor.h"
#include "common/transport/ucx/message.h"
#include "common/transport/ucx/worker.h"

namespace quarry::transport::ucx {

// On the loop's thread.
class RemoteRegions {
 public:
  // Whether a region may be added. InvalidArgument or ResourceExhausted name the field and the bound.
  absl::Status Admit(uint32_t key, const RegionClaim& claim) const;
  void Add(uint32_t key, const RegionClaim& claim, std::shared_ptr<RemoteKey> remote);
  void Remove(uint32_t key) { regions_.erase(key); }
  void Clear() { regions_.clear(); }

  // What the descriptors of an item of so many bytes stand for. InvalidArgument: not all of it lies
  // in regions that are there, or it is longer or shorter, or in more than kMaxPlacePieces pieces.
  absl::StatusOr<std::vector<RemoteRun>> Find(absl::Span<const Descriptor> descriptors, size_t item_bytes) const;

 private:
  struct Region {
    std::shared_ptr<RemoteKey> key;
    uint64_t base = 0;
    uint64_t bytes = 0;
  };
  std::unordered_map<uint32_t, Region> regions_;
};

}  // namespace quarry::transport::ucx

#endif  // QUARRY_COMMON_TRANSPORT_UCX_REMOTE_REGIONS_H_
