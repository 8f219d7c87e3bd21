// Where the bytes of an item lie in a caller's memory: a list of strided segments.
//
// A strided segment stands for `count` equal pieces, so that a block whose layers lie
// `stride` apart costs one descriptor however many layers there are. The bytes of the
// item are the pieces in order.
#ifndef QUARRY_SEGMENTS_H_
#define QUARRY_SEGMENTS_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "quarry/export.h"

namespace quarry {

inline constexpr size_t kMaxSegmentPieces = 1u << 20;  // of one item, all descriptors together

struct Segment {
  std::byte* base = nullptr;  // of the first piece
  size_t length = 0;          // bytes of a piece, at least 1
  size_t stride = 0;          // bytes from a piece's start to the next one's; ignored when count is 1
  size_t count = 1;           // pieces, at least 1
};
using SegmentList = std::vector<Segment>;

struct MemoryRange {
  std::byte* base = nullptr;
  size_t bytes = 0;
};

// Sum of all pieces. Only for a list that ValidateSegments accepted.
QUARRY_EXPORT size_t TotalBytes(absl::Span<const Segment> segments);

enum class SegmentUse : uint8_t { kSource, kDestination };

// Checks once what every later step relies on: no zero length or count, no address
// overflow, at most kMaxSegmentPieces, every piece inside one of `registered`, the total
// equal to `expected_bytes`, and for destinations no two pieces that share a byte.
// `registered` must be sorted by base and disjoint. InvalidArgument names the segment,
// the rule and the bound. O(pieces log pieces) at worst; linear for lists in address
// order.
QUARRY_EXPORT absl::Status ValidateSegments(absl::Span<const Segment> segments, SegmentUse use,
                                            absl::Span<const MemoryRange> registered, size_t expected_bytes);

// Walks a segment list from a byte offset and hands out iovecs, without allocation.
// The list must outlive the cursor.
class SegmentCursor {
 public:
  SegmentCursor() = default;
  // Positions at `offset` bytes into the item; offset <= TotalBytes.
  explicit SegmentCursor(absl::Span<const Segment> segments, size_t offset = 0);

  // Fills at most `max` iovecs that cover at most `bytes` bytes from the current
  // position; returns how many. Does not move. `covered`, if given, gets their total.
  size_t Peek(iovec* out, size_t max, size_t bytes, size_t* covered = nullptr) const;
  // Moves forward; at most what is left.
  void Advance(size_t bytes);

 private:
  absl::Span<const Segment> segments_;
  size_t segment_ = 0;  // index into segments_
  size_t piece_ = 0;    // within the segment
  size_t offset_ = 0;   // within the piece
};

}  // namespace quarry

#endif  // QUARRY_SEGMENTS_H_
