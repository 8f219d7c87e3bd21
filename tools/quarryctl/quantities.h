// Numbers beyond common/units.h, as people write them: rates and scaled counts.
#ifndef QUARRY_TOOLS_QUARRYCTL_QUANTITIES_H_
#define QUARRY_TOOLS_QUARRYCTL_QUANTITIES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quarry::ctl {

// Bytes a second, above 0: a size as common/units.h has it and "/s", or kbit/s, Mbit/s,
// Gbit/s, Tbit/s (powers of 1000 bits). InvalidArgument says what is wrong.
absl::StatusOr<double> ParseByteRate(absl::string_view text);

// A finite number above 0, with an exponent or one of the suffixes k, M, B or G, T, P, E
// (powers of 1000).
absl::StatusOr<double> ParseQuantity(absl::string_view text);
// With the suffix that leaves at least 1, to four digits: "68.45B". `giga` is what 10^9 is
// called: "B" of parameters, else "G".
std::string FormatQuantity(double value, absl::string_view giga = "G");

}  // namespace quarry::ctl

#endif  // QUARRY_TOOLS_QUARRYCTL_QUANTITIES_H_
