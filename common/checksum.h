// Chunked payload checksums: XXH3-64 (seed 0) over each 64 KiB chunk and a root over all.
//
// root = XXH3_64bits_withSeed(payload_bytes as 8 bytes LE || chunk sums as 8 bytes LE each,
//                             IdentitySeed(namespace id, group, shard, hash))
//
// The identity in the root makes the right bytes under the wrong key fail as well. The
// sums travel with the payload, so a byte range is verified by the chunks that it touches.
#ifndef QUARRY_COMMON_CHECKSUM_H_
#define QUARRY_COMMON_CHECKSUM_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "quarry/segments.h"

namespace quarry {

inline constexpr size_t kChunkBytes = 64 << 10;

constexpr size_t ChunkCount(size_t payload_bytes) { return (payload_bytes + kChunkBytes - 1) / kChunkBytes; }

// XXH3-64 with seed 0.
uint64_t ChunkSum(const void* data, size_t bytes);

// namespace_id || group as 4 bytes LE || shard as 4 bytes LE || hash, summed by XXH3-64.
uint64_t IdentitySeed(absl::string_view namespace_id, uint32_t group, uint32_t shard, absl::string_view hash);

uint64_t RootSum(uint64_t identity_seed, size_t payload_bytes, absl::Span<const uint64_t> chunk_sums);

// Sums bytes that arrive in pieces, in order, chunk by chunk.
class ChunkSummer {
 public:
  ChunkSummer();
  ~ChunkSummer();
  ChunkSummer(ChunkSummer&&) noexcept;
  ChunkSummer& operator=(ChunkSummer&&) noexcept;

  // Starts over. The first chunk boundary is after `first_chunk_bytes`, the next ones
  // kChunkBytes apart; sums go to `out`, which must have room for all of them.
  void Start(size_t first_chunk_bytes, uint64_t* out);
  void Update(const void* data, size_t bytes);
  // Closes the last, shorter chunk, if any. Returns how many sums were written.
  size_t Finish();

 private:
  struct State;
  State* state_;
};

// All chunk sums of an item that lies in `segments`, read once in order.
void SumSegments(absl::Span<const Segment> segments, size_t payload_bytes, uint64_t* sums);

}  // namespace quarry

#endif  // QUARRY_COMMON_CHECKSUM_H_
