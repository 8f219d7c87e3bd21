#include "common/transport/shm/mapped_region.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "common/net/memory_file.h"
#include "common/transport/shm/copy_past_cache.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace quarry::transport::shm {

absl::StatusOr<std::unique_ptr<Region>> MappedRegion::Create(const RegionClaim& claim, UniqueFd file) {
  struct stat info;
  if (!file || !IsMemoryFile(file.get(), &info)) {
    return absl::InvalidArgumentError("what is to be mapped is no file in memory");
  }
  if (!CannotShrink(file.get())) {
    return absl::InvalidArgumentError("what is to be mapped has no seal that keeps it from shrinking");
  }
  const uint64_t begin = claim.file_offset / kPageBytes * kPageBytes;
  const uint64_t end = claim.file_offset + claim.bytes;
  if (end > static_cast<uint64_t>(info.st_size)) return absl::InvalidArgumentError("region: beyond the file's end");
  if (!IsAllAllocated(info)) return absl::InvalidArgumentError("what is to be mapped has holes");
  auto mapping = Mapping::Map(file.get(), begin, end - begin);
  if (!mapping.ok()) return mapping.status();
  std::byte* base = mapping->data() + (claim.file_offset - begin);
  return std::unique_ptr<Region>(std::make_unique<MappedRegion>(claim, std::move(file), *std::move(mapping), base));
}

MappedRegion::MappedRegion(const RegionClaim& claim, UniqueFd file, Mapping mapping, std::byte* base)
    : Region(claim, base), file_(std::move(file)), mapping_(std::move(mapping)) {}

bool MappedRegion::Warm(size_t bytes) {
  if (warmed_ == mapping_.size()) return false;
  const size_t part = std::min(bytes / kPageBytes * kPageBytes, mapping_.size() - warmed_);
  // Page tables only: the pages are there. Where the kernel has no such call, first touches pay.
  madvise(mapping_.data() + warmed_, part, MADV_POPULATE_WRITE);
  warmed_ += part;
  return true;
}

absl::Status MappedRegion::CheckNoHoles() const {
  struct stat info;
  if (fstat(file_.get(), &info) == 0 && IsAllAllocated(info)) return absl::OkStatus();
  return absl::FailedPreconditionError("the client has punched holes into memory that it registered");
}

absl::Status MappedRegion::CopyTo(absl::Span<const iovec> pieces, const std::byte* from) {
  if (absl::Status status = CheckNoHoles(); !status.ok()) return status;
  for (const iovec& piece : pieces) {
    CopyPastCache(static_cast<std::byte*>(piece.iov_base), from, piece.iov_len);
    from += piece.iov_len;
  }
  return absl::OkStatus();
}

absl::Status MappedRegion::CopyFrom(absl::Span<const iovec> pieces, std::byte* to, ChunkSummer* summer) {
  if (absl::Status status = CheckNoHoles(); !status.ok()) return status;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto* after = static_cast<const std::byte*>(pieces[std::min(i + 1, pieces.size() - 1)].iov_base);
    CopyPastCacheSummed(to, static_cast<const std::byte*>(pieces[i].iov_base), pieces[i].iov_len, after, summer);
    to += pieces[i].iov_len;
  }
  return absl::OkStatus();
}

}  // namespace quarry::transport::shm
