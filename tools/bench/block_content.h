// What the bytes of a block are, so that whoever reads one back knows what must be there.
//
// Word i (8 bytes LE) of block `id` is Base(id) + i * kStep: a byte in the wrong place, of
// the wrong block or never written differs, and a pass over it runs at memory speed.
#ifndef QUARRY_TOOLS_BENCH_BLOCK_CONTENT_H_
#define QUARRY_TOOLS_BENCH_BLOCK_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "quarry/segments.h"

namespace quarry::bench {

// A well-mixed function of x (the finaliser of SplitMix64).
uint64_t Mix(uint64_t x);

// The hash that names block `id`: 32 bytes, a function of `id` alone. Different salts
// give different hashes for the same ids.
inline constexpr size_t kHashBytes = 32;
std::string HashOf(uint64_t id, uint64_t salt = 0);
void AppendHash(uint64_t id, uint64_t salt, std::string* out);

// Segments' pieces are multiples of 8 bytes; content runs through them in order.
void FillBlock(uint64_t id, absl::Span<const Segment> segments);
// Overwrites one word in every kPoisonStride bytes, so that what lay there before cannot
// pass for what was to be delivered.
inline constexpr size_t kPoisonStride = 256;
void PoisonBlock(absl::Span<const Segment> segments);
// How many bytes differ from the content of block `id`.
uint64_t WrongBytes(uint64_t id, absl::Span<const Segment> segments);
// The same for `words` words at places that follow from `seed`: cheap enough for timed
// loops. Segments of one length, one piece each.
uint64_t WrongBytesSampled(uint64_t id, absl::Span<const Segment> segments, uint64_t seed, size_t words);

}  // namespace quarry::bench

#endif  // QUARRY_TOOLS_BENCH_BLOCK_CONTENT_H_
