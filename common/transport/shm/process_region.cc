#include "common/transport/shm/process_region.h"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace quarry::transport::shm {
namespace {

using ProcessCall = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

absl::Status Copy(ProcessCall call, const Peer& peer, absl::Span<const iovec> pieces, std::byte* here) {
  size_t bytes = 0;
  for (const iovec& piece : pieces) bytes += piece.iov_len;
  // Its number may be another process's once it is gone.
  if (peer.dead()) return absl::UnavailableError("the client's process has ended");
  const iovec local{here, bytes};
  const ssize_t done = call(peer.pid(), &local, 1, pieces.data(), pieces.size(), 0);
  if (done == static_cast<ssize_t>(bytes)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("memory that the client registered cannot be reached: ",
                                                    done < 0 ? strerror(errno) : "part of it is not there"));
}

}  // namespace

absl::Status ProcessRegion::CopyTo(absl::Span<const iovec> pieces, const std::byte* from) {
  return Copy(process_vm_writev, *peer_, pieces, const_cast<std::byte*>(from));
}

absl::Status ProcessRegion::CopyFrom(absl::Span<const iovec> pieces, std::byte* to, ChunkSummer* summer) {
  absl::Status status = Copy(process_vm_readv, *peer_, pieces, to);
  if (!status.ok()) return status;
  for (const iovec& piece : pieces) {
    summer->Update(to, piece.iov_len);
    to += piece.iov_len;
  }
  return absl::OkStatus();
}

}  // namespace quarry::transport::shm
