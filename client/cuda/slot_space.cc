#include "client/cuda/slot_space.h"

#include <cstdint>
#include <cstdlib>

namespace quarry::cuda {

SlotSpace::SlotSpace(size_t bytes) : bytes_(bytes) {
  if (bytes > 0) free_.emplace(0, bytes);
}

std::optional<size_t> SlotSpace::Take(size_t bytes) {
  if (bytes == 0 || bytes > bytes_) return std::nullopt;
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (auto slot = free_.begin(); slot != free_.end(); ++slot) {
    const auto [offset, room] = *slot;
    if (room < bytes) continue;
    free_.erase(slot);
    // The last slot of memory that ends unaligned is as long as that allows.
    const size_t taken = rounded < room ? rounded : room;
    if (taken < room) free_.emplace(offset + taken, room - taken);
    used_.emplace(offset, taken);
    return offset;
  }
  return std::nullopt;
}

void SlotSpace::Give(size_t offset) {
  const auto slot = used_.find(offset);
  if (slot == used_.end()) std::abort();  // given twice: another's bytes would be overwritten
  size_t bytes = slot->second;
  used_.erase(slot);
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + bytes) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    auto before = after;
    --before;
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(offset, bytes);
}

}  // namespace quarry::cuda
