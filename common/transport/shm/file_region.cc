#include "common/transport/shm/file_region.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/memory_file.h"

namespace quarry::transport::shm {
namespace {

off_t OffsetOf(const iovec& piece) { return reinterpret_cast<off_t>(piece.iov_base); }

// A write into a hole, or beyond the end, would allocate memory on the server's account.
absl::Status CheckAllocated(int file, off_t offset, size_t bytes) {
  const off_t hole = lseek(file, offset, SEEK_HOLE);
  if (hole >= 0 && hole >= offset + static_cast<off_t>(bytes)) return absl::OkStatus();
  return absl::FailedPreconditionError("the client has cut, or punched holes into, memory that it registered");
}

absl::Status Broken(const char* call, ssize_t result) {
  return absl::FailedPreconditionError(
      absl::StrCat(call, " of memory that the client registered: ",
                   result < 0 ? absl::string_view(ErrnoStatus(errno, "failed").message()) : "it has been cut"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Region>> FileRegion::Create(const RegionClaim& claim, UniqueFd file) {
  struct stat info;
  if (!file || !IsMemoryFile(file.get(), &info)) return absl::InvalidArgumentError("region: no file in memory");
  // What came is shared with the client, who could make every write an append.
  UniqueFd own(open(absl::StrCat("/proc/self/fd/", file.get()).c_str(), O_RDWR | O_CLOEXEC));
  if (!own) return ErrnoStatus(errno, "region: the file cannot be opened by the server");
  if (claim.file_offset + claim.bytes > static_cast<uint64_t>(info.st_size)) {
    return absl::InvalidArgumentError("region: beyond the file's end");
  }
  absl::Status status = CheckAllocated(own.get(), static_cast<off_t>(claim.file_offset), claim.bytes);
  if (!status.ok()) return absl::InvalidArgumentError("region: the file has holes there");
  return std::unique_ptr<Region>(std::make_unique<FileRegion>(claim, std::move(own)));
}

FileRegion::FileRegion(const RegionClaim& claim, UniqueFd file)
    : Region(claim, reinterpret_cast<std::byte*>(claim.file_offset)), file_(std::move(file)) {}

absl::Status FileRegion::CopyTo(absl::Span<const iovec> pieces, const std::byte* from) {
  for (const iovec& piece : pieces) {
    off_t at = OffsetOf(piece);
    if (absl::Status status = CheckAllocated(file_.get(), at, piece.iov_len); !status.ok()) return status;
    for (size_t left = piece.iov_len; left > 0;) {
      const ssize_t done = pwrite(file_.get(), from, left, at);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return Broken("pwrite", done);
      from += done;
      at += done;
      left -= static_cast<size_t>(done);
    }
  }
  return absl::OkStatus();
}

absl::Status FileRegion::CopyFrom(absl::Span<const iovec> pieces, std::byte* to, ChunkSummer* summer) {
  for (const iovec& piece : pieces) {
    off_t at = OffsetOf(piece);
    for (size_t left = piece.iov_len; left > 0;) {
      // What is summed at once is still in the cache.
      const ssize_t done = pread(file_.get(), to, std::min(left, kChunkBytes), at);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) return Broken("pread", done);
      summer->Update(to, static_cast<size_t>(done));
      to += done;
      at += done;
      left -= static_cast<size_t>(done);
    }
  }
  return absl::OkStatus();
}

}  // namespace quarry::transport::shm
