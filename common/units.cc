#include "common/units.h"

#include <cctype>
#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace quarry {
namespace {

struct Unit {
  absl::string_view name;
  uint64_t factor;
};

constexpr uint64_t kKibi = 1024;
// Binary ones from the greatest to the least, for formatting; then the decimal ones.
constexpr Unit kSizes[] = {
    {"TiB", kKibi* kKibi* kKibi* kKibi},
    {"GiB", kKibi* kKibi* kKibi},
    {"MiB", kKibi* kKibi},
    {"KiB", kKibi},
    {"B", 1},
    {"kB", 1'000},
    {"MB", 1'000'000},
    {"GB", 1'000'000'000},
    {"TB", 1'000'000'000'000},
};
constexpr size_t kFormattedSizes = 5;

constexpr Unit kTimes[] = {
    {"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}, {"m", 60'000'000'000}, {"h", 3'600'000'000'000},
};
constexpr size_t kFormattedTimes = 4;

bool IsNumberCharacter(char c) { return std::isdigit(static_cast<unsigned char>(c)) || c == '.'; }

// `number` x `factor`, without the rounding of a double where the number is whole.
absl::StatusOr<uint64_t> Scale(absl::string_view text, absl::string_view number, uint64_t factor) {
  uint64_t whole = 0;
  if (absl::SimpleAtoi(number, &whole)) {
    uint64_t result = 0;
    if (__builtin_mul_overflow(whole, factor, &result)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is too large"));
    }
    return result;
  }
  double fraction = 0;
  if (!absl::SimpleAtod(number, &fraction)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" does not start with a number"));
  }
  const double scaled = std::round(fraction * static_cast<double>(factor));
  if (scaled >= std::ldexp(1.0, 63)) return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is too large"));
  return static_cast<uint64_t>(scaled);
}

// `bare_factor` is the unit of a number without one; 0: only 0 may go without.
absl::StatusOr<uint64_t> Parse(absl::string_view text, absl::Span<const Unit> units, uint64_t bare_factor,
                               absl::string_view examples) {
  size_t digits = 0;
  while (digits < text.size() && IsNumberCharacter(text[digits])) ++digits;
  const absl::string_view number = text.substr(0, digits);
  absl::string_view unit = text.substr(digits);
  if (number.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" does not start with a number"));
  }
  if (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (unit.empty()) {
    if (bare_factor != 0) return Scale(text, number, bare_factor);
    absl::StatusOr<uint64_t> value = Scale(text, number, 1);
    if (!value.ok() || *value == 0) return value;
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" has no unit, ", examples));
  }
  for (const Unit& candidate : units) {
    if (unit == candidate.name) return Scale(text, number, candidate.factor);
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" has an unknown unit, ", examples));
}

std::string Format(uint64_t value, absl::Span<const Unit> descending) {
  for (const Unit& unit : descending) {
    if (value < unit.factor) continue;
    if (value % unit.factor == 0) return absl::StrCat(value / unit.factor, unit.name);
    char buffer[32];
    std::snprintf(buffer, sizeof(buffer), "%.2f", static_cast<double>(value) / static_cast<double>(unit.factor));
    std::string number = buffer;
    while (number.back() == '0') number.pop_back();
    if (number.back() == '.') number.pop_back();
    return absl::StrCat(number, unit.name);
  }
  return absl::StrCat("0", descending.back().name);
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  return Parse(text, kSizes, 1, "sizes read 64KiB, 512MiB or 8GiB");
}

std::string FormatBytes(uint64_t bytes) { return Format(bytes, absl::MakeSpan(kSizes).first(kFormattedSizes)); }

absl::StatusOr<int64_t> ParseDuration(absl::string_view text) {
  const absl::StatusOr<uint64_t> ns = Parse(text, kTimes, 0, "times read 250ms, 10s or 2m");
  if (!ns.ok()) return ns.status();
  if (*ns > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is too large"));
  }
  return static_cast<int64_t>(*ns);
}

std::string FormatDuration(int64_t ns) {
  if (ns < 0) return absl::StrCat("-", FormatDuration(-ns));
  return Format(static_cast<uint64_t>(ns), absl::MakeSpan(kTimes).first(kFormattedTimes));
}

}  // namespace quarry
