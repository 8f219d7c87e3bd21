// Files that are memory: memfds and what lies in /dev/shm.
#ifndef QUARRY_COMMON_NET_MEMORY_FILE_H_
#define QUARRY_COMMON_NET_MEMORY_FILE_H_

#include <sys/stat.h>

#include <cstddef>

#include "absl/status/statusor.h"
#include "common/net/socket.h"

namespace quarry {

inline constexpr size_t kPageBytes = 4096;

// A memfd of so many bytes that can neither shrink nor grow, for ever. Not yet allocated.
absl::StatusOr<UniqueFd> MakeMemoryFile(const char* name, size_t bytes);

// Whether it is a regular file in tmpfs, which memfds are too: nothing else is read or
// written here, because a file of any other kind may take as long as its owner likes.
bool IsMemoryFile(int fd, struct stat* info);
// Whether its seals keep it from shrinking, so that mapped bytes stay there.
bool CannotShrink(int fd);
// Whether it has no holes: to touch one would allocate memory on the toucher's account.
bool IsAllAllocated(const struct stat& info);

}  // namespace quarry

#endif  // QUARRY_COMMON_NET_MEMORY_FILE_H_
