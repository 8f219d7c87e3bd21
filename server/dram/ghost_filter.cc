#include "server/dram/ghost_filter.h"

#include <algorithm>
#include <bit>

namespace quarry::server {
namespace {

constexpr int kCauseBits = 4;
constexpr uint32_t kCauseMask = (1u << kCauseBits) - 1;
constexpr int kFingerprintBits = 32 - kCauseBits;
static_assert(kMissCauses <= 1 << kCauseBits);

// The bits above the fingerprint choose the set, so that the two are independent.
uint64_t SetBits(uint64_t hash) { return hash >> kFingerprintBits; }
uint32_t Tag(uint64_t hash) { return static_cast<uint32_t>(hash) << kCauseBits; }

}  // namespace

GhostFilter::GhostFilter(uint64_t entries) {
  const uint64_t sets = std::bit_ceil(std::max<uint64_t>(1, (entries + kWays - 1) / kWays));
  table_.resize(sets * kWays);
  set_mask_ = sets - 1;
}

void GhostFilter::Remember(uint64_t hash, MissCause cause) {
  const uint64_t set = SetBits(hash) & set_mask_;
  uint32_t* ways = &table_[set * kWays];
  std::lock_guard<std::mutex> lock(StripeOf(set));
  uint32_t way = 0;
  while (way + 1 < kWays && ways[way] != 0 && (ways[way] & ~kCauseMask) != Tag(hash)) ++way;
  std::copy_backward(ways, ways + way, ways + way + 1);
  ways[0] = Tag(hash) | static_cast<uint32_t>(cause);
}

MissCause GhostFilter::Recall(uint64_t hash) const {
  const uint64_t set = SetBits(hash) & set_mask_;
  const uint32_t* ways = &table_[set * kWays];
  std::lock_guard<std::mutex> lock(StripeOf(set));
  for (uint32_t way = 0; way < kWays && ways[way] != 0; ++way) {
    if ((ways[way] & ~kCauseMask) == Tag(hash)) return static_cast<MissCause>(ways[way] & kCauseMask);
  }
  return MissCause::kNeverStored;
}

}  // namespace quarry::server
