// In place of gpu_memory.cc where there is no CUDA toolkit.
#include "tools/bench/gpu_memory.h"

namespace quarry::bench {

absl::StatusOr<std::unique_ptr<GpuMemory>> GpuMemory::Create(size_t) {
  return absl::UnavailableError("--buffers cuda: this was built without CUDA");
}

}  // namespace quarry::bench
