// Where the bytes of blocks lie in an engine's GPU memory (facts of engines as they are).
#ifndef QUARRY_TESTS_GPU_LAYOUTS_H_
#define QUARRY_TESTS_GPU_LAYOUTS_H_

#include <cstddef>
#include <cstdint>

#include "client/cuda/copier.h"

namespace quarry::gpu_check {

// Blocks of `pieces` pieces each: piece p of block b lies behind piece p of block b - 1, as layers
// do that hold one piece of every block.
struct Layout {
  const char* name;
  uint64_t pieces;
  uint64_t piece_bytes;
  uint64_t gap_bytes = 0;    // behind each piece
  uint64_t first_byte = 0;   // in aligned GPU memory
  uint64_t host_offset = 0;  // in aligned host memory

  uint64_t block_bytes() const { return pieces * piece_bytes; }
  uint64_t slot_bytes() const { return piece_bytes + gap_bytes; }
  // Of GPU memory for so many blocks.
  uint64_t span(uint64_t blocks) const { return first_byte + blocks * pieces * slot_bytes(); }
  uint64_t offset(uint64_t blocks, uint64_t block, uint64_t piece) const {
    return first_byte + (piece * blocks + block) * slot_bytes();
  }
  // Adds one of `blocks` blocks, which lies in one at `host` there.
  void Add(cuda::Direction direction, uint64_t blocks, uint64_t block, uint64_t device, uint64_t host,
           cuda::CopyBatch* batch) const {
    batch->Add(direction, device + offset(blocks, block, 0), host, piece_bytes, blocks * slot_bytes(), pieces);
  }
};

inline constexpr Layout kLlama8B{"8B: 32 x 64 KiB", 32, 64 << 10};
inline constexpr Layout kTensorParallel8{"70B TP8: 80 x 8 KiB", 80, 8 << 10};
inline constexpr Layout kMla{"MLA: 61 x 72 KiB", 61, 72 << 10};
inline constexpr Layout kHalfLayers{"64 x 32 KiB", 64, 32 << 10};
inline constexpr Layout kQuarterMiB{"8 x 256 KiB", 8, 256 << 10};
inline constexpr Layout kOneMiB{"2 x 1 MiB", 2, 1 << 20};

}  // namespace quarry::gpu_check

#endif  // QUARRY_TESTS_GPU_LAYOUTS_H_
