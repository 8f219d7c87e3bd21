// Address space that is reserved at once and becomes memory as it is touched.
#ifndef QUARRY_SERVER_DRAM_RESERVED_MEMORY_H_
#define QUARRY_SERVER_DRAM_RESERVED_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quarry::server {

// Of small allocations, where memory is counted: malloc's header and rounding, roughly.
inline constexpr size_t kAllocationOverhead = 16;

// Private anonymous pages, zero until written, aligned to kAlignment. Unmapped on
// destruction.
class ReservedMemory {
 public:
  static constexpr size_t kAlignment = 2 << 20;  // a huge page

  ReservedMemory() = default;
  ReservedMemory(ReservedMemory&& other) noexcept
      : mapping_(std::exchange(other.mapping_, nullptr)),
        mapping_bytes_(std::exchange(other.mapping_bytes_, 0)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  ReservedMemory& operator=(ReservedMemory other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapping_bytes_, other.mapping_bytes_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ReservedMemory();

  // kHuge where all of it will be used, kSmall where only parts of it will.
  enum class Pages { kSmall, kHuge };

  // ResourceExhausted when the address space is not to be had.
  static absl::StatusOr<ReservedMemory> Create(size_t bytes, Pages pages);
  // Makes every page present now. ResourceExhausted when memory does not suffice.
  absl::Status Populate();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_DRAM_RESERVED_MEMORY_H_
