// How the process' allocator treats what is freed.
#ifndef QUARRY_COMMON_ALLOCATOR_H_
#define QUARRY_COMMON_ALLOCATOR_H_

#include <malloc.h>

namespace quarry {

// gRPC takes and frees buffers of up to 4 MiB for all that it receives. By default each of
// them goes back to the kernel, which clears its pages before it gives them out again: half of
// the cost of a put over gRPC. From now on some tens of MiB stay with the process. Call it
// before other threads start; for programs, never for a library in someone else's process.
inline void KeepFreedMemory() {
  // The most that glibc takes. What is larger is mapped and unmapped each time.
  constexpr int kMmapThresholdBytes = 32 << 20;
  // Of each of the allocator's arenas, at its end. Only what was in use at once can lie there.
  constexpr int kTrimThresholdBytes = 64 << 20;
  mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  mallopt(M_TRIM_THRESHOLD, kTrimThresholdBytes);
}

}  // namespace quarry

#endif  // QUARRY_COMMON_ALLOCATOR_H_
