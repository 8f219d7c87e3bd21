// What the blocks of the tests hold, and buffers that show every byte that was written.
#ifndef QUARRY_TESTS_INTEGRATION_BLOCKS_H_
#define QUARRY_TESTS_INTEGRATION_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "quarry/segments.h"
#include "tests/unit/transport/memory.h"

namespace quarry::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline constexpr uint32_t kHashBytes = 32;

// A block's hash follows from its id.
std::string HashOf(uint64_t id);
// And so do the bytes of its shards, which are those of no other shard of any block.
Bytes ContentOf(uint64_t id, uint32_t group, uint32_t shard, size_t bytes);

// Buffers as an engine has them: each item is in pieces, a layer's share each, between the
// same layer's pieces of the other items. Between any two pieces is a gap of known bytes;
// before the first and behind the last, memory faults.
class Buffers {
 public:
  Buffers(size_t items, size_t item_bytes, size_t piece_bytes);

  MemoryRange range() const { return {memory_.data(), memory_.size()}; }
  size_t size() const { return items_; }
  size_t item_bytes() const { return item_bytes_; }
  size_t piece_bytes() const { return piece_bytes_; }
  size_t pieces() const { return pieces_; }
  SegmentList segments(size_t item) const { return segments(item, 0, pieces_); }
  // Pieces [first, end) of the item, end > first.
  SegmentList segments(size_t item, size_t first, size_t end) const;

  void Fill(size_t item, const Bytes& content);
  void Clear();  // all items
  Bytes Read(size_t item) const;
  bool Holds(size_t item, const Bytes& content) const { return Read(item) == content; }
  // Not a byte has been written since the last Clear.
  bool Untouched(size_t item) const;
  bool GapsIntact() const;

  // From now on an access crashes the test, or fails in a system call.
  void Forbid() { memory_.Lock(); }
  void Allow() { memory_.Unlock(); }

 private:
  std::byte* Piece(size_t item, size_t piece) const { return memory_.data() + (piece * items_ + item) * stride_; }
  size_t PieceBytes(size_t piece) const;

  const size_t items_;
  const size_t item_bytes_;
  const size_t piece_bytes_;
  const size_t pieces_;
  const size_t stride_;  // of a piece and its gap
  GuardedMemory memory_;
};

}  // namespace quarry::testing

#endif  // QUARRY_TESTS_INTEGRATION_BLOCKS_H_
