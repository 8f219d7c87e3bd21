#include "common/transport/shm/region.h"

#include "absl/strings/str_cat.h"
#include "common/transport/shm/file_region.h"
#include "common/transport/shm/mapped_region.h"
#include "common/transport/shm/process_region.h"

namespace quarry::transport::shm {

absl::StatusOr<std::unique_ptr<Region>> Region::Create(const RegionClaim& claim, UniqueFd file, const Peer* peer) {
  if (claim.bytes == 0 || claim.base > UINT64_MAX - claim.bytes || claim.file_offset > INT64_MAX ||
      claim.bytes > static_cast<uint64_t>(INT64_MAX) - claim.file_offset) {
    return absl::InvalidArgumentError("region: empty, or beyond the address space");
  }
  switch (claim.kind) {
    case RegionKind::kMapped:
      return MappedRegion::Create(claim, std::move(file));
    case RegionKind::kFile:
      return FileRegion::Create(claim, std::move(file));
    case RegionKind::kProcess:
      return std::unique_ptr<Region>(std::make_unique<ProcessRegion>(claim, peer));
  }
  return absl::InvalidArgumentError(absl::StrCat("region kind: ", static_cast<uint32_t>(claim.kind), " is none"));
}

}  // namespace quarry::transport::shm
