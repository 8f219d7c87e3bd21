// Memory of the first GPU, for a bench's buffers.
#ifndef QUARRY_TOOLS_BENCH_GPU_MEMORY_H_
#define QUARRY_TOOLS_BENCH_GPU_MEMORY_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quarry::bench {

// Thread-safe, but for its end.
class GpuMemory {
 public:
  // Unavailable: there is no driver, no GPU, or this was built without CUDA.
  static absl::StatusOr<std::unique_ptr<GpuMemory>> Create(size_t bytes);
  virtual ~GpuMemory() = default;
  GpuMemory() = default;
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // Not to be touched by the host.
  virtual std::byte* base() const = 0;
  // Between it and host memory; return when that is done.
  virtual absl::Status Write(std::byte* to, const std::byte* from, size_t bytes) const = 0;
  virtual absl::Status Read(std::byte* to, const std::byte* from, size_t bytes) const = 0;
};

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_GPU_MEMORY_H_
