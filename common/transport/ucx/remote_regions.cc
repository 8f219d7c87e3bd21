#include "common/transport/ucx/remote_regions.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry::transport::ucx {

absl::Status RemoteRegions::Admit(uint32_t key, const RegionClaim& claim) const {
  if (claim.bytes == 0 || claim.base > UINT64_MAX - claim.bytes) {
    return absl::InvalidArgumentError("region: empty, or beyond the address space");
  }
  if (regions_.contains(key)) return absl::InvalidArgumentError(absl::StrCat("region ", key, ": there is one"));
  if (regions_.size() >= kMaxRegions) {
    return absl::ResourceExhaustedError(absl::StrCat("regions: at most ", kMaxRegions));
  }
  return absl::OkStatus();
}

void RemoteRegions::Add(uint32_t key, const RegionClaim& claim, std::shared_ptr<RemoteKey> remote) {
  regions_[key] = {std::move(remote), claim.base, claim.bytes};
}

absl::StatusOr<std::vector<RemoteRun>> RemoteRegions::Find(absl::Span<const Descriptor> descriptors,
                                                           size_t item_bytes) const {
  std::vector<RemoteRun> runs;
  size_t left = item_bytes;
  uint64_t pieces = 0;
  for (const Descriptor& descriptor : descriptors) {
    const auto found = regions_.find(descriptor.region);
    if (found == regions_.end()) {
      return absl::InvalidArgumentError(absl::StrCat("descriptor: there is no region ", descriptor.region));
    }
    const Region& region = found->second;
    uint64_t bytes = 0;
    if (absl::Status status = CheckInside(descriptor, region.bytes, &bytes); !status.ok()) return status;
    pieces += descriptor.count;
    if (bytes > left || pieces > kMaxPlacePieces) {
      return absl::InvalidArgumentError(absl::StrCat("descriptors: more than the ", item_bytes,
                                                     " bytes of the item, or than ", kMaxPlacePieces, " pieces"));
    }
    left -= bytes;
    runs.push_back(
        {region.key, region.base + descriptor.offset, descriptor.length, descriptor.stride, descriptor.count});
  }
  if (left > 0) return absl::InvalidArgumentError("descriptors: fewer bytes than the item has");
  return runs;
}

}  // namespace quarry::transport::ucx
