// Any memory of a process of the same user, by process_vm_writev and process_vm_readv: pages
// that these touch first are allocated on the client's account.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_PROCESS_REGION_H_
#define QUARRY_COMMON_TRANSPORT_SHM_PROCESS_REGION_H_

#include "common/transport/shm/region.h"

namespace quarry::transport::shm {

class ProcessRegion : public Region {
 public:
  ProcessRegion(const RegionClaim& claim, const Peer* peer)
      : Region(claim, reinterpret_cast<std::byte*>(claim.base)), peer_(peer) {}

  absl::Status CopyTo(absl::Span<const iovec> pieces, const std::byte* from) override;
  absl::Status CopyFrom(absl::Span<const iovec> pieces, std::byte* to, ChunkSummer* summer) override;

 private:
  const Peer* const peer_;
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_PROCESS_REGION_H_
