#include "tools/quarryctl/quantities.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/units.h"

namespace quarry::ctl {
namespace {

struct Scale {
  absl::string_view suffix;
  double factor;
};

constexpr Scale kScales[] = {{"E", 1e18}, {"P", 1e15}, {"T", 1e12}, {"B", 1e9}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}};
constexpr Scale kBitRates[] = {{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}};
constexpr char kRateExamples[] = "rates read 24GB/s, 312.5MiB/s or 400Gbit/s";

absl::Status NotAbove0(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not above 0"));
}

}  // namespace

absl::StatusOr<double> ParseByteRate(absl::string_view text) {
  absl::string_view amount = text;
  if (!absl::ConsumeSuffix(&amount, "/s")) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" does not end in /s, ", kRateExamples));
  }
  for (const Scale& scale : kBitRates) {
    absl::string_view number = amount;
    double bits = 0;
    if (!absl::ConsumeSuffix(&number, scale.suffix)) continue;
    if (!absl::SimpleAtod(number, &bits) || !std::isfinite(bits)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a number of bits, ", kRateExamples));
    }
    if (bits <= 0) return NotAbove0(text);
    return bits * scale.factor / 8;
  }
  const absl::StatusOr<uint64_t> bytes = ParseBytes(amount);
  if (!bytes.ok()) return absl::InvalidArgumentError(absl::StrCat(bytes.status().message(), "; ", kRateExamples));
  if (*bytes == 0) return NotAbove0(text);
  return static_cast<double>(*bytes);
}

absl::StatusOr<double> ParseQuantity(absl::string_view text) {
  absl::string_view number = text;
  double factor = 1;
  for (const Scale& scale : kScales) {
    if (!absl::ConsumeSuffix(&number, scale.suffix)) continue;
    factor = scale.factor;
    break;
  }
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !std::isfinite(value * factor)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a number; numbers read 20000, 1.4e15, 70B or 989T"));
  }
  if (value <= 0) return NotAbove0(text);
  return value * factor;
}

std::string FormatQuantity(double value, absl::string_view giga) {
  for (const Scale& scale : kScales) {
    if (value < scale.factor) continue;
    return absl::StrCat(absl::StrFormat("%.4g", value / scale.factor), scale.factor == 1e9 ? giga : scale.suffix);
  }
  return absl::StrFormat("%.4g", value);
}

}  // namespace quarry::ctl
