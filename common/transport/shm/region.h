// A range of the client's memory as the server reaches it.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_REGION_H_
#define QUARRY_COMMON_TRANSPORT_SHM_REGION_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/net/socket.h"
#include "common/transport/shm/message.h"
#include "common/transport/shm/peer.h"

namespace quarry::transport::shm {

// What a client registers, as it says: the server believes none of it.
struct RegionClaim {
  uint32_t key = 0;
  RegionKind kind = RegionKind::kProcess;
  uint64_t base = 0;  // in the client
  uint64_t bytes = 0;
  uint64_t file_offset = 0;
};

// Copies are between pieces of the region, given by addresses that count from base(), and as
// many bytes here. Not OK: the client's memory is not what was registered, which ends its
// session. Thread-safe.
class Region {
 public:
  virtual ~Region() = default;
  // `file`: of all but kProcess. `peer` outlives it. Not OK says why it cannot be used.
  static absl::StatusOr<std::unique_ptr<Region>> Create(const RegionClaim& claim, UniqueFd file, const Peer* peer);

  // Where piece addresses count from: not always an address.
  std::byte* base() const { return base_; }
  uint64_t bytes() const { return claim_.bytes; }
  uint32_t key() const { return claim_.key; }

  // Makes up to `bytes` more of it quick to touch. False: it is all ready.
  virtual bool Warm(size_t) { return false; }
  virtual absl::Status CopyTo(absl::Span<const iovec> pieces, const std::byte* from) = 0;
  // What has come is given to `summer` as it lies here.
  virtual absl::Status CopyFrom(absl::Span<const iovec> pieces, std::byte* to, ChunkSummer* summer) = 0;

 protected:
  Region(const RegionClaim& claim, std::byte* base) : claim_(claim), base_(base) {}
  const RegionClaim claim_;

 private:
  std::byte* const base_;
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_REGION_H_
