#include "server/dram/size_classes.h"

#include <algorithm>

namespace quarry::server {

namespace {
constexpr uint64_t kStepsPerOctave = 16;
}  // namespace

SizeClasses::SizeClasses(uint64_t slab_bytes) {
  for (uint64_t octave = kSlotAlignment; octave < slab_bytes; octave *= 2) {
    const uint64_t step = std::max(kSlotAlignment, octave / kStepsPerOctave);
    for (uint64_t bytes = octave; bytes < 2 * octave; bytes += step) slot_bytes_.push_back(bytes);
  }
  slot_bytes_.push_back(slab_bytes);
}

int SizeClasses::ClassOf(uint64_t bytes) const {
  const auto it = std::lower_bound(slot_bytes_.begin(), slot_bytes_.end(), bytes);
  return it == slot_bytes_.end() ? kNone : static_cast<int>(it - slot_bytes_.begin());
}

}  // namespace quarry::server
