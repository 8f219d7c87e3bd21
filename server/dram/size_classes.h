// The slot sizes of the arena.
#ifndef QUARRY_SERVER_DRAM_SIZE_CLASSES_H_
#define QUARRY_SERVER_DRAM_SIZE_CLASSES_H_

#include <cstdint>
#include <vector>

namespace quarry::server {

inline constexpr uint64_t kSlotAlignment = 4096;  // direct IO reads and writes whole slots

// Multiples of 4 KiB from 4 KiB to the slab, at most 16 an octave: powers of two are
// exact, and a payload of at least 64 KiB leaves less than 1/16 of its slot unused.
class SizeClasses {
 public:
  static constexpr int kNone = -1;

  // `slab_bytes`: a power of two, at least 64 KiB.
  explicit SizeClasses(uint64_t slab_bytes);

  // The smallest class that holds `bytes`; kNone when they exceed a slab.
  int ClassOf(uint64_t bytes) const;
  int count() const { return static_cast<int>(slot_bytes_.size()); }
  uint64_t slot_bytes(int size_class) const { return slot_bytes_[size_class]; }

 private:
  std::vector<uint64_t> slot_bytes_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_DRAM_SIZE_CLASSES_H_
