// What the fuzz targets share: the input, taken piece by piece, and what must hold.
#ifndef QUARRY_TESTS_FUZZ_INPUT_H_
#define QUARRY_TESTS_FUZZ_INPUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace quarry::fuzz {

inline void Require(bool condition) {
  if (!condition) std::abort();
}

// What is no longer there reads as zeros, or as less.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  template <typename T>
  T Take() {
    T value{};
    const size_t bytes = std::min(sizeof value, size_);
    std::memcpy(&value, data_, bytes);
    Skip(bytes);
    return value;
  }
  std::string TakeBytes(size_t most) {
    const size_t bytes = std::min(most, size_);
    std::string taken(reinterpret_cast<const char*>(data_), bytes);
    Skip(bytes);
    return taken;
  }

 private:
  void Skip(size_t bytes) {
    data_ += bytes;
    size_ -= bytes;
  }
  const uint8_t* data_;
  size_t size_;
};

}  // namespace quarry::fuzz

#endif  // QUARRY_TESTS_FUZZ_INPUT_H_
