// A memfd that cannot shrink, mapped.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_MAPPED_REGION_H_
#define QUARRY_COMMON_TRANSPORT_SHM_MAPPED_REGION_H_

#include <memory>

#include "common/transport/shm/board.h"
#include "common/transport/shm/region.h"

namespace quarry::transport::shm {

class MappedRegion : public Region {
 public:
  static absl::StatusOr<std::unique_ptr<Region>> Create(const RegionClaim& claim, UniqueFd file);
  MappedRegion(const RegionClaim& claim, UniqueFd file, Mapping mapping, std::byte* base);

  bool Warm(size_t bytes) override;
  absl::Status CopyTo(absl::Span<const iovec> pieces, const std::byte* from) override;
  absl::Status CopyFrom(absl::Span<const iovec> pieces, std::byte* to, ChunkSummer* summer) override;

 private:
  absl::Status CheckNoHoles() const;

  const UniqueFd file_;
  const Mapping mapping_;
  size_t warmed_ = 0;
};

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_MAPPED_REGION_H_
