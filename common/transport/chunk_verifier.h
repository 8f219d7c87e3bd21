// Checks the sums of an item while its bytes land: each chunk is summed as soon as its
// last byte is in place, when it is still in the cache.
#ifndef QUARRY_COMMON_TRANSPORT_CHUNK_VERIFIER_H_
#define QUARRY_COMMON_TRANSPORT_CHUNK_VERIFIER_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/checksum.h"
#include "quarry/segments.h"

namespace quarry::transport {

// The part of a payload that one transfer moves.
struct PayloadRange {
  size_t offset = 0;
  size_t bytes = 0;          // at least 1
  size_t payload_bytes = 0;  // of the whole; offset + bytes <= payload_bytes
};

// Of the range's first and last touched chunk, those that it covers only in part.
struct RangeEdges {
  bool first_partial = false;
  bool last_partial = false;  // false when it is the first chunk, too
};
RangeEdges EdgesOf(const PayloadRange& range);

class ChunkVerifier {
 public:
  // `segments` hold the range's bytes. `expected`: sums of the payload's chunks, or empty
  // to only compute. `edge_sums`: sums of what the range has of its first and last chunk,
  // where EdgesOf says that it has them in part. `out`: where the sums of all chunks of
  // the range go, or nullptr. All outlive the verification.
  void Start(absl::Span<const Segment> segments, const PayloadRange& range, absl::Span<const uint64_t> expected,
             const uint64_t edge_sums[2], uint64_t* out);
  // The first `arrived` bytes of the range are in place.
  void Advance(size_t arrived);
  // Whether every chunk summed so far was as expected.
  bool intact() const { return intact_; }

 private:
  uint64_t SumOf(size_t bytes);
  uint64_t ExpectedSum(size_t chunk) const;

  SegmentCursor cursor_;
  PayloadRange range_;
  RangeEdges edges_;
  absl::Span<const uint64_t> expected_;
  uint64_t edge_sums_[2] = {0, 0};
  uint64_t* out_ = nullptr;
  size_t summed_ = 0;  // bytes of the range
  bool intact_ = true;
  ChunkSummer summer_;
};

}  // namespace quarry::transport

#endif  // QUARRY_COMMON_TRANSPORT_CHUNK_VERIFIER_H_
