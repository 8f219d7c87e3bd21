// Sizes and times as people write them: "8GiB", "250ms".
#ifndef QUARRY_COMMON_UNITS_H_
#define QUARRY_COMMON_UNITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quarry {

// A decimal number, with a fraction if need be, and B, KiB, MiB, GiB, TiB (powers of 1024)
// or kB, MB, GB, TB (of 1000). No unit: bytes. InvalidArgument says what is wrong.
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);
// The greatest binary unit that leaves at least 1, with at most two decimals.
std::string FormatBytes(uint64_t bytes);

// Nanoseconds from a decimal number and ns, us, ms, s, m or h. Only 0 goes without a unit.
absl::StatusOr<int64_t> ParseDuration(absl::string_view text);
// Likewise, ns to s.
std::string FormatDuration(int64_t ns);

}  // namespace quarry

#endif  // QUARRY_COMMON_UNITS_H_
