#include "quarry/segments.h"

#include <algorithm>
#include <queue>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quarry {
namespace {

size_t Address(const std::byte* pointer) { return reinterpret_cast<size_t>(pointer); }

// One past the last byte of the last piece.
size_t End(const Segment& segment) {
  return Address(segment.base) + (segment.count - 1) * segment.stride + segment.length;
}

std::string At(size_t index) { return absl::StrCat("segments[", index, "]"); }

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckShape(const Segment& segment, size_t index) {
  if (segment.length == 0) return Bad(At(index), ".length must be at least 1");
  if (segment.count == 0) return Bad(At(index), ".count must be at least 1");
  size_t extent = 0;
  size_t end = 0;
  if ((segment.count > 1 && __builtin_mul_overflow(segment.count - 1, segment.stride, &extent)) ||
      __builtin_add_overflow(extent, segment.length, &extent) ||
      __builtin_add_overflow(extent, Address(segment.base), &end)) {
    return Bad(At(index), " reaches beyond the address space");
  }
  return absl::OkStatus();
}

absl::Status CheckTotals(absl::Span<const Segment> segments, size_t expected_bytes) {
  size_t pieces = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    if (segment.count > kMaxSegmentPieces - pieces) {
      return Bad(At(i), ".count: more than ", kMaxSegmentPieces, " pieces in the list");
    }
    pieces += segment.count;
    size_t segment_bytes = 0;
    if (__builtin_mul_overflow(segment.length, segment.count, &segment_bytes) ||
        __builtin_add_overflow(bytes, segment_bytes, &bytes) || bytes > expected_bytes) {
      return Bad(At(i), ": the list covers more than the item's ", expected_bytes, " bytes");
    }
  }
  if (bytes != expected_bytes) return Bad("segments cover ", bytes, " bytes, the item has ", expected_bytes);
  return absl::OkStatus();
}

bool LiesIn(const MemoryRange& range, size_t address, size_t bytes) {
  const size_t base = Address(range.base);
  return address >= base && address - base <= range.bytes && bytes <= range.bytes - (address - base);
}

// Checks the pieces of one segment after the other, remembering where the last one lay:
// lists mostly walk upwards through one range.
class RangeChecker {
 public:
  explicit RangeChecker(absl::Span<const MemoryRange> ranges) : ranges_(ranges) {}

  absl::Status Check(const Segment& segment, size_t index) {
    const size_t base = Address(segment.base);
    if (Contains(base, End(segment) - base)) return absl::OkStatus();
    for (size_t piece = 0; piece < segment.count; ++piece) {
      if (!Contains(base + piece * segment.stride, segment.length)) {
        return Bad(At(index), ": piece ", piece, " of ", segment.length, " bytes is not inside one registered range");
      }
    }
    return absl::OkStatus();
  }

 private:
  bool Contains(size_t address, size_t bytes) {
    if (last_ < ranges_.size() && LiesIn(ranges_[last_], address, bytes)) return true;
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                        [](size_t a, const MemoryRange& range) { return a < Address(range.base); });
    if (after == ranges_.begin()) return false;
    last_ = static_cast<size_t>(after - ranges_.begin()) - 1;
    return LiesIn(ranges_[last_], address, bytes);
  }

  absl::Span<const MemoryRange> ranges_;
  size_t last_ = 0;
};

// The pieces of a segment that a merge in address order has not passed yet.
struct Rest {
  size_t address;  // of the next piece
  size_t count;
  size_t index;  // of the segment
};

struct LaterFirst {
  bool operator()(const Rest& a, const Rest& b) const { return a.address > b.address; }
};

// Merges the pieces of all segments by address; each segment's own pieces are in order
// and do not overlap. Runs of pieces before the next segment's are taken at once.
absl::Status CheckInterleaved(absl::Span<const Segment> segments) {
  std::vector<Rest> rests;
  rests.reserve(segments.size());
  for (size_t i = 0; i < segments.size(); ++i) rests.push_back({Address(segments[i].base), segments[i].count, i});
  std::priority_queue<Rest, std::vector<Rest>, LaterFirst> merge(LaterFirst(), std::move(rests));
  while (!merge.empty()) {
    Rest rest = merge.top();
    merge.pop();
    if (merge.empty()) break;
    const Segment& segment = segments[rest.index];
    const size_t limit = merge.top().address;  // >= rest.address
    // Pieces that start at the limit or before it; the last must end there.
    const size_t passed = rest.count > 1 ? std::min(rest.count, (limit - rest.address) / segment.stride + 1) : 1;
    if (rest.address + (passed - 1) * segment.stride + segment.length > limit) {
      const auto [first, second] = std::minmax(rest.index, merge.top().index);
      return Bad(At(first), " and ", At(second), " overlap, as pieces of a destination must not");
    }
    rest.address += passed * segment.stride;
    rest.count -= passed;
    if (rest.count > 0) merge.push(rest);
  }
  return absl::OkStatus();
}

absl::Status CheckDisjoint(absl::Span<const Segment> segments) {
  bool in_order = true;
  size_t end = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    if (segment.count > 1 && segment.stride < segment.length) {
      return Bad(At(i), ".stride must be at least its length, ", segment.length, ", in a destination, is ",
                 segment.stride);
    }
    in_order = in_order && Address(segment.base) >= end;
    end = End(segment);
  }
  return in_order ? absl::OkStatus() : CheckInterleaved(segments);
}

}  // namespace

size_t TotalBytes(absl::Span<const Segment> segments) {
  size_t total = 0;
  for (const Segment& segment : segments) total += segment.length * segment.count;
  return total;
}

absl::Status ValidateSegments(absl::Span<const Segment> segments, SegmentUse use,
                              absl::Span<const MemoryRange> registered, size_t expected_bytes) {
  for (size_t i = 0; i < segments.size(); ++i) {
    if (absl::Status status = CheckShape(segments[i], i); !status.ok()) return status;
  }
  if (absl::Status status = CheckTotals(segments, expected_bytes); !status.ok()) return status;
  RangeChecker ranges(registered);
  for (size_t i = 0; i < segments.size(); ++i) {
    if (absl::Status status = ranges.Check(segments[i], i); !status.ok()) return status;
  }
  return use == SegmentUse::kDestination ? CheckDisjoint(segments) : absl::OkStatus();
}

SegmentCursor::SegmentCursor(absl::Span<const Segment> segments, size_t offset) : segments_(segments) {
  Advance(offset);
}

size_t SegmentCursor::Peek(iovec* out, size_t max, size_t bytes, size_t* covered) const {
  size_t used = 0;
  size_t left = bytes;
  size_t piece = piece_;
  size_t offset = offset_;
  bool full = false;
  for (size_t i = segment_; i < segments_.size() && left > 0 && !full; ++i, piece = 0) {
    const Segment& segment = segments_[i];
    for (; piece < segment.count && left > 0; ++piece, offset = 0) {
      std::byte* start = segment.base + piece * segment.stride + offset;
      const size_t take = std::min(segment.length - offset, left);
      if (used > 0 && static_cast<std::byte*>(out[used - 1].iov_base) + out[used - 1].iov_len == start) {
        out[used - 1].iov_len += take;  // adjacent pieces make one iovec
      } else if (used < max) {
        out[used++] = {start, take};
      } else {
        full = true;
        break;
      }
      left -= take;
    }
  }
  if (covered != nullptr) *covered = bytes - left;
  return used;
}

void SegmentCursor::Advance(size_t bytes) {
  while (bytes > 0 && segment_ < segments_.size()) {
    const Segment& segment = segments_[segment_];
    const size_t done = piece_ * segment.length + offset_;
    const size_t left = segment.length * segment.count - done;
    if (bytes >= left) {
      bytes -= left;
      ++segment_;
      piece_ = offset_ = 0;
    } else {
      piece_ = (done + bytes) / segment.length;
      offset_ = (done + bytes) % segment.length;
      bytes = 0;
    }
  }
}

}  // namespace quarry
