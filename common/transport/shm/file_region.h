// A file in memory that may shrink at any time, by pwrite and pread: a mapping of it could
// raise SIGBUS.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_FILE_REGION_H_
#define QUARRY_COMMON_TRANSPORT_SHM_FILE_REGION_H_

#include <memory>

#include "common/transport/shm/region.h"

namespace quarry::transport::shm {

class FileRegion : public Region {
 public:
  static absl::StatusOr<std::unique_ptr<Region>> Create(const RegionClaim& claim, UniqueFd file);
  FileRegion(const RegionClaim& claim, UniqueFd file);

  absl::Status CopyTo(absl::Span<const iovec> pieces, const std::byte* from) override;
  absl::Status CopyFrom(absl::Span<const iovec> pieces, std::byte* to, ChunkSummer* summer) override;

 private:
  const UniqueFd file_;  // an open file of the server's own: the client cannot set its flags
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_FILE_REGION_H_
