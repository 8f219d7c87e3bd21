// What lies behind a range of this process's memory.
#ifndef QUARRY_COMMON_TRANSPORT_SHM_BACKING_H_
#define QUARRY_COMMON_TRANSPORT_SHM_BACKING_H_

#include <cstdint>

#include "common/net/socket.h"
#include "quarry/segments.h"

namespace quarry::transport::shm {

struct Backing {
  // Of the file in memory whose shared mapping the range is; not valid: it is none, or cannot
  // be opened.
  UniqueFd file;
  uint64_t file_offset = 0;  // of the range's first byte
  bool cannot_shrink = false;
};

// Reads /proc/self/maps, and looks for a memfd among the open descriptors.
Backing FindBacking(const MemoryRange& range);

}  // namespace quarry::transport::shm

#endif  // QUARRY_COMMON_TRANSPORT_SHM_BACKING_H_
