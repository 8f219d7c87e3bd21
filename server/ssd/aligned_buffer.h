// Memory for direct IO.
#ifndef QUARRY_SERVER_SSD_ALIGNED_BUFFER_H_
#define QUARRY_SERVER_SSD_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

#include "server/ssd/record_header.h"

namespace quarry::server {

// Whole pages, on a page's boundary; not initialised.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes)
      : bytes_(InWholePages(bytes)), data_(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, bytes_))) {
    if (data_ == nullptr) throw std::bad_alloc();
  }

  std::byte* data() const { return data_.get(); }
  size_t size() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  size_t bytes_ = 0;
  std::unique_ptr<std::byte[], Free> data_;
};

}  // namespace quarry::server

#endif  // QUARRY_SERVER_SSD_ALIGNED_BUFFER_H_
