// Which parts of a stretch of memory are in use.
#ifndef QUARRY_CLIENT_CUDA_SLOT_SPACE_H_
#define QUARRY_CLIENT_CUDA_SLOT_SPACE_H_

#include <cstddef>
#include <map>
#include <optional>

namespace quarry::cuda {

// Slots of any length, first fit, given back in any order. Not thread-safe.
class SlotSpace {
 public:
  static constexpr size_t kAlignment = 256;

  explicit SlotSpace(size_t bytes);

  size_t bytes() const { return bytes_; }
  bool empty() const { return used_.empty(); }
  // The offset of `bytes` (at least 1), a multiple of kAlignment; nullopt while there is no room.
  std::optional<size_t> Take(size_t bytes);
  // A slot that was taken, by its offset.
  void Give(size_t offset);

 private:
  const size_t bytes_;
  std::map<size_t, size_t> free_;  // bytes by offset; no two adjoin
  std::map<size_t, size_t> used_;
};

}  // namespace quarry::cuda

#endif  // QUARRY_CLIENT_CUDA_SLOT_SPACE_H_
