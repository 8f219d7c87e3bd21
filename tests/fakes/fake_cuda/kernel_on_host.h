// FAKE. The copy kernel's own source, compiled for the host: one thread after the other.
#ifndef QUARRY_TESTS_FAKES_FAKE_CUDA_KERNEL_ON_HOST_H_
#define QUARRY_TESTS_FAKES_FAKE_CUDA_KERNEL_ON_HOST_H_

#include "client/cuda/copy_piece.h"

namespace quarry::fakes::cuda {

// What the launch of so many blocks does. The pieces' addresses are those of the host.
void RunCopyKernel(unsigned blocks, unsigned block_threads, const quarry::cuda::CopyPiece* pieces, unsigned count);

}  // namespace quarry::fakes::cuda

#endif  // QUARRY_TESTS_FAKES_FAKE_CUDA_KERNEL_ON_HOST_H_
