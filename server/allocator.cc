#include "server/allocator.h"

#include <malloc.h>

namespace quarry::server {
namespace {

// The most that glibc takes. What is larger is mapped and unmapped each time.
constexpr int kMmapThresholdBytes = 32 << 20;
// Of each of the allocator's arenas, at its end. Only what was in use at once can lie there.
constexpr int kTrimThresholdBytes = 64 << 20;

}  // namespace

void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  mallopt(M_TRIM_THRESHOLD, kTrimThresholdBytes);
}

}  // namespace quarry::server
