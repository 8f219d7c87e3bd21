#include "tests/fakes/fake_cuda/kernel_on_host.h"

#include <cstdint>

// What nvcc knows by itself.
#define __device__
#define __global__
#define __launch_bounds__(threads)
namespace {
struct OneDimension {
  unsigned x = 0;
};
thread_local OneDimension threadIdx, blockIdx, gridDim;
struct alignas(16) uint4 {
  uint32_t words[4];
};
}  // namespace
// A file of its own brings the kernel in, because nothing else is to see these names.
#include "client/cuda/copy_kernel.cu"  // NOLINT(bugprone-suspicious-include)

namespace quarry::fakes::cuda {

void RunCopyKernel(unsigned blocks, unsigned block_threads, const quarry::cuda::CopyPiece* pieces, unsigned count) {
  gridDim.x = blocks;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < block_threads; ++threadIdx.x) quarry_copy(pieces, count);
  }
}

}  // namespace quarry::fakes::cuda
