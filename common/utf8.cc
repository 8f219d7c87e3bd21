#include "common/utf8.h"

#include <cstddef>
#include <cstdint>

namespace quarry {
namespace {

// Of the first byte: how many follow, and which values the second may have.
struct Lead {
  size_t following = 0;
  uint8_t least = 0x80;
  uint8_t most = 0xBF;
  bool valid = true;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {};
  if (byte >= 0xC2 && byte <= 0xDF) return {.following = 1};
  if (byte == 0xE0) return {.following = 2, .least = 0xA0};  // else two bytes would do
  if (byte == 0xED) return {.following = 2, .most = 0x9F};   // else a surrogate
  if (byte >= 0xE1 && byte <= 0xEF) return {.following = 2};
  if (byte == 0xF0) return {.following = 3, .least = 0x90};  // else three bytes would do
  if (byte >= 0xF1 && byte <= 0xF3) return {.following = 3};
  if (byte == 0xF4) return {.following = 3, .most = 0x8F};  // else beyond U+10FFFF
  return {.valid = false};
}

}  // namespace

bool IsUtf8(absl::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  for (size_t i = 0; i < bytes.size();) {
    const Lead lead = LeadOf(at(i));
    if (!lead.valid || bytes.size() - i <= lead.following) return false;
    for (size_t k = 1; k <= lead.following; ++k) {
      const uint8_t least = k == 1 ? lead.least : 0x80;
      const uint8_t most = k == 1 ? lead.most : 0xBF;
      if (at(i + k) < least || at(i + k) > most) return false;
    }
    i += 1 + lead.following;
  }
  return true;
}

}  // namespace quarry
