// Whether the destinations of one operation share a byte.
#ifndef QUARRY_CLIENT_DISJOINT_H_
#define QUARRY_CLIENT_DISJOINT_H_

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "quarry/segments.h"

namespace quarry {

// Pieces of all lists together, of those whose extents interleave.
inline constexpr size_t kMaxInterleavedPieces = 4 << 20;

// Each list is a valid destination of at most kMaxShardBytes by itself. InvalidArgument
// names two lists that share a byte, as `name` calls them.
absl::Status CheckDisjoint(absl::Span<const absl::Span<const Segment>> lists,
                           absl::FunctionRef<std::string(size_t)> name);

}  // namespace quarry

#endif  // QUARRY_CLIENT_DISJOINT_H_
