// Where an item's bytes lie in memory that a client has registered: what it tells a server that
// reaches that memory itself.
#ifndef QUARRY_COMMON_TRANSPORT_DESCRIPTOR_H_
#define QUARRY_COMMON_TRANSPORT_DESCRIPTOR_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "quarry/segments.h"

namespace quarry::transport {

// Pieces of an item in one region: piece k is `length` bytes at offset + k * stride.
struct Descriptor {
  uint32_t region = 0;  // key
  uint32_t count = 0;
  uint64_t offset = 0;  // in the region
  uint64_t length = 0;
  uint64_t stride = 0;
};
static_assert(sizeof(Descriptor) == 32);

// At the server, which believes none of it. InvalidArgument: not all pieces lie in a region of so
// many bytes, or there are none. Else `bytes` gets what they hold together; they may overlap.
absl::Status CheckInside(const Descriptor& descriptor, uint64_t region_bytes, uint64_t* bytes);

// At the client.
struct RegisteredRange {
  MemoryRange range;
  uint32_t key = 0;
};
using RegisteredRanges = std::vector<RegisteredRange>;  // sorted by base, disjoint
void InsertRange(const RegisteredRange& range, RegisteredRanges* ranges);

// Turns segments into descriptors.
class Describer {
 public:
  explicit Describer(const RegisteredRanges& ranges) : ranges_(ranges) {}
  // Appends to `out`, up to `most` in all. False: not all of the segments' pieces lie in registered
  // ranges, or there would be more; `out` is as before.
  bool Describe(absl::Span<const Segment> segments, size_t most, std::vector<Descriptor>* out);

 private:
  bool AddSegment(const Segment& segment);
  bool AddPieces(const std::byte* base, size_t extent, size_t length, size_t stride, size_t count);
  bool Contains(const std::byte* base, size_t bytes) const;

  const RegisteredRanges& ranges_;
  size_t last_ = 0;  // where the last piece was
  size_t most_ = 0;
  std::vector<Descriptor>* out_ = nullptr;
};

}  // namespace quarry::transport

#endif  // QUARRY_COMMON_TRANSPORT_DESCRIPTOR_H_
