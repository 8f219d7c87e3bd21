// What the copy kernel is given: shared by it, the host side and the fake driver.
#ifndef QUARRY_CLIENT_CUDA_COPY_PIECE_H_
#define QUARRY_CLIENT_CUDA_COPY_PIECE_H_

#include <cstdint>

namespace quarry::cuda {

// Contiguous bytes between page-locked host memory and a GPU's: addresses as the GPU has them,
// which are those of the host, too.
struct CopyPiece {
  uint64_t to;
  uint64_t from;
  uint64_t bytes;
};

inline constexpr char kCopyKernel[] = "quarry_copy";  // (const CopyPiece* pieces, unsigned count)
inline constexpr unsigned kWarpThreads = 32;
inline constexpr unsigned kBlockThreads = 256;
inline constexpr unsigned kBlockWarps = kBlockThreads / kWarpThreads;
// Enough reads on their way for any bus, and most of a GPU left to its owner: 512 warps, each with
// up to 4 KiB under way.
inline constexpr unsigned kMaxBlocks = 64;
// A warp's share: longer pieces are cut.
inline constexpr uint64_t kKernelPieceBytes = 8 << 10;

}  // namespace quarry::cuda

#endif  // QUARRY_CLIENT_CUDA_COPY_PIECE_H_
