// Copies many pieces in one launch, either way between page-locked host memory and the GPU's. A
// warp a piece; 16 bytes a thread where both ends allow it, else the widest word that they do.
#include <cstdint>

#include "client/cuda/copy_piece.h"

namespace quarry::cuda {
namespace {

// What lies on the other side of a bus takes microseconds: many reads first, then their writes.
constexpr int kReadsUnderWay = 8;

template <typename Word>
__device__ void CopyWords(uint64_t to, uint64_t from, uint64_t words, unsigned lane) {
  auto* target = reinterpret_cast<Word*>(to);
  const auto* source = reinterpret_cast<const Word*>(from);
  uint64_t i = lane;
  for (; i + (kReadsUnderWay - 1) * kWarpThreads < words; i += kReadsUnderWay * kWarpThreads) {
    Word read[kReadsUnderWay];
    for (int k = 0; k < kReadsUnderWay; ++k) read[k] = source[i + k * kWarpThreads];
    for (int k = 0; k < kReadsUnderWay; ++k) target[i + k * kWarpThreads] = read[k];
  }
  for (; i < words; i += kWarpThreads) target[i] = source[i];
}

template <typename Word>
__device__ void CopyAligned(const CopyPiece& piece, unsigned lane) {
  // Up to where the target's words begin, and so the source's.
  uint64_t head = (0 - piece.to) & (sizeof(Word) - 1);
  if (head > piece.bytes) head = piece.bytes;
  const uint64_t words = (piece.bytes - head) / sizeof(Word);
  const uint64_t tail = head + words * sizeof(Word);
  CopyWords<uint8_t>(piece.to, piece.from, head, lane);
  CopyWords<Word>(piece.to + head, piece.from + head, words, lane);
  CopyWords<uint8_t>(piece.to + tail, piece.from + tail, piece.bytes - tail, lane);
}

__device__ void Copy(const CopyPiece& piece, unsigned lane) {
  const uint64_t apart = piece.to ^ piece.from;
  if (apart % sizeof(uint4) == 0) {
    CopyAligned<uint4>(piece, lane);
  } else if (apart % sizeof(uint64_t) == 0) {
    CopyAligned<uint64_t>(piece, lane);
  } else if (apart % sizeof(uint32_t) == 0) {
    CopyAligned<uint32_t>(piece, lane);
  } else if (apart % sizeof(uint16_t) == 0) {
    CopyAligned<uint16_t>(piece, lane);
  } else {
    CopyWords<uint8_t>(piece.to, piece.from, piece.bytes, lane);
  }
}

}  // namespace
}  // namespace quarry::cuda

extern "C" __global__ void __launch_bounds__(quarry::cuda::kBlockThreads)
    quarry_copy(const quarry::cuda::CopyPiece* pieces, unsigned count) {
  using namespace quarry::cuda;
  const unsigned lane = threadIdx.x % kWarpThreads;
  for (unsigned i = blockIdx.x * kBlockWarps + threadIdx.x / kWarpThreads; i < count; i += gridDim.x * kBlockWarps) {
    Copy(pieces[i], lane);
  }
}
