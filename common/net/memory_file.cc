#include "common/net/memory_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

namespace quarry {
namespace {

constexpr size_t kStatBlockBytes = 512;

}  // namespace

absl::StatusOr<UniqueFd> MakeMemoryFile(const char* name, size_t bytes) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return ErrnoStatus(errno, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return ErrnoStatus(errno, "ftruncate");
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return ErrnoStatus(errno, "seal");
  return fd;
}

bool IsMemoryFile(int fd, struct stat* info) {
  struct statfs system;
  return fstat(fd, info) == 0 && S_ISREG(info->st_mode) && fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

bool CannotShrink(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

bool IsAllAllocated(const struct stat& info) {
  const size_t pages = (static_cast<size_t>(info.st_size) + kPageBytes - 1) / kPageBytes;
  return static_cast<size_t>(info.st_blocks) >= pages * (kPageBytes / kStatBlockBytes);
}

}  // namespace quarry
