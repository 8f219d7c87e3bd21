// Memory whose neighbours fault, and items scattered over it.
#ifndef QUARRY_TESTS_UNIT_TRANSPORT_MEMORY_H_
#define QUARRY_TESTS_UNIT_TRANSPORT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "quarry/segments.h"

namespace quarry {

using Bytes = std::vector<std::byte>;

// Bytes that differ from those of any other seed, nearly everywhere.
Bytes Payload(uint64_t seed, size_t bytes);

// What lies behind memory.
enum class MemoryKind { kPrivate, kSealedMemfd, kShmFile };

// Ends right before a page that faults; another one lies before its first page.
class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes, MemoryKind kind = MemoryKind::kPrivate);
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  absl::Span<const std::byte> bytes() const { return {data_, size_}; }
  // From now on every access faults (or, in a system call, fails), until Unlock: that ends the
  // process if the bytes have changed meanwhile, as another mapping of them may.
  void Lock();
  void Unlock();

 private:
  size_t size_;
  size_t page_bytes_;  // of the pages that may be accessed
  std::byte* mapping_;
  std::byte* data_;
  int fd_ = -1;
  Bytes locked_;
};

// Whose bytes all change at one instant, under whoever reads them: a writer that stores
// byte by byte could be stopped half-way, and half-written bytes that nobody changes while
// they are summed and sent are what the source is.
class ReplaceableMemory {
 public:
  // Both of the same size.
  ReplaceableMemory(const Bytes& before, const Bytes& after);
  ReplaceableMemory(const ReplaceableMemory&) = delete;
  ReplaceableMemory& operator=(const ReplaceableMemory&) = delete;
  ~ReplaceableMemory();

  std::byte* data() const { return data_; }
  void Replace();

 private:
  size_t mapped_bytes_;
  int fd_;  // holds the one, then the other
  std::byte* data_ = nullptr;
};

enum class Shape { kContiguous, kStrided64K, kStrided8K, kOdd };
inline constexpr Shape kShapes[] = {Shape::kContiguous, Shape::kStrided64K, Shape::kStrided8K, Shape::kOdd};

// An item's buffer in guarded memory, with gaps between its pieces.
class ScatteredBuffer {
 public:
  ScatteredBuffer(Shape shape, size_t bytes);
  // What those that are made from now on lie in.
  static void UseMemory(MemoryKind kind);

  absl::Span<const Segment> segments() const { return segments_; }
  size_t size() const { return size_; }
  GuardedMemory& memory() { return memory_; }
  void Fill(const Bytes& payload);
  // Whether the item is `payload`, and no byte between its pieces has changed.
  bool Holds(const Bytes& payload) const;
  bool Untouched() const { return Holds(initial_); }
  // Whether no byte outside the item has changed.
  bool GapsIntact() const;

 private:
  Bytes Item() const;

  size_t size_;
  SegmentList segments_;
  GuardedMemory memory_;
  Bytes initial_;
};

}  // namespace quarry

#endif  // QUARRY_TESTS_UNIT_TRANSPORT_MEMORY_H_
