#include "common/placement.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checksum.h"

namespace quarry {
namespace {

using Wide = unsigned __int128;  // token numbers of 64-bit block indices

constexpr Wide kFirstBoundary = 512;
constexpr Wide kGrowth = 8;

uint64_t FirstBlockFrom(Wide token, uint32_t tokens_per_block) {
  const Wide block = (token + tokens_per_block - 1) / tokens_per_block;
  return static_cast<uint64_t>(std::min<Wide>(block, std::numeric_limits<uint64_t>::max()));
}

}  // namespace

BlockRange SpanOf(uint64_t block, uint32_t tokens_per_block) {
  const Wide token = Wide{block} * tokens_per_block;
  Wide start = 0;
  Wide next = kFirstBoundary;
  while (next <= token) {
    start = next;
    next *= kGrowth;
  }
  return {FirstBlockFrom(start, tokens_per_block), FirstBlockFrom(next, tokens_per_block)};
}

uint32_t PlacementSlot(absl::string_view namespace_id, absl::string_view hash) {
  const std::string key = absl::StrCat(namespace_id, hash);
  return static_cast<uint32_t>(ChunkSum(key.data(), key.size()) % kPlacementSlots);
}

}  // namespace quarry
