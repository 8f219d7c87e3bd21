// Built without CUDA: all memory is host memory.
#include "client/gpu_transfers.h"

namespace quarry {

absl::StatusOr<std::optional<int>> GpuOf(MemoryRange) { return std::nullopt; }

absl::StatusOr<std::unique_ptr<GpuTransfers>> StartGpuTransfers(ClientImpl*, size_t, std::shared_ptr<AtomicCounters>) {
  return absl::UnimplementedError("GPU memory: this library was built without CUDA");
}

}  // namespace quarry
