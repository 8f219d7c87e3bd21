#include "tests/integration/blocks.h"

#include <algorithm>
#include <cstring>

namespace quarry::testing {
namespace {

constexpr size_t kGapBytes = 72;  // pieces begin at all kinds of addresses
constexpr std::byte kGap{0xA5};
constexpr std::byte kCleared{0x5A};

}  // namespace

std::string HashOf(uint64_t id) {
  std::string hash(kHashBytes, 'h');
  std::memcpy(hash.data(), &id, sizeof id);
  return hash;
}

Bytes ContentOf(uint64_t id, uint32_t group, uint32_t shard, size_t bytes) {
  return Payload((id << 16) + (uint64_t{group} << 8) + shard, bytes);
}

Buffers::Buffers(size_t items, size_t item_bytes, size_t piece_bytes)
    : items_(items),
      item_bytes_(item_bytes),
      piece_bytes_(piece_bytes),
      pieces_((item_bytes + piece_bytes - 1) / piece_bytes),
      stride_(piece_bytes + kGapBytes),
      memory_(items * pieces_ * stride_) {
  std::fill_n(memory_.data(), memory_.size(), kGap);
  Clear();
}

size_t Buffers::PieceBytes(size_t piece) const { return std::min(piece_bytes_, item_bytes_ - piece * piece_bytes_); }

SegmentList Buffers::segments(size_t item, size_t first, size_t end) const {
  SegmentList list;
  const size_t whole = PieceBytes(end - 1) == piece_bytes_ ? end : end - 1;
  if (whole > first) list.push_back({Piece(item, first), piece_bytes_, items_ * stride_, whole - first});
  if (whole < end) list.push_back({Piece(item, whole), PieceBytes(whole), 0, 1});
  return list;
}

void Buffers::Fill(size_t item, const Bytes& content) {
  for (size_t piece = 0; piece < pieces_; ++piece) {
    std::memcpy(Piece(item, piece), content.data() + piece * piece_bytes_, PieceBytes(piece));
  }
}

void Buffers::Clear() {
  for (size_t item = 0; item < items_; ++item) Fill(item, Bytes(item_bytes_, kCleared));
}

Bytes Buffers::Read(size_t item) const {
  Bytes content(item_bytes_);
  for (size_t piece = 0; piece < pieces_; ++piece) {
    std::memcpy(content.data() + piece * piece_bytes_, Piece(item, piece), PieceBytes(piece));
  }
  return content;
}

bool Buffers::Untouched(size_t item) const { return Holds(item, Bytes(item_bytes_, kCleared)); }

bool Buffers::GapsIntact() const {
  for (size_t item = 0; item < items_; ++item) {
    for (size_t piece = 0; piece < pieces_; ++piece) {
      const std::byte* end = Piece(item, piece) + PieceBytes(piece);
      const std::byte* next = Piece(item, piece) + stride_;
      if (!std::all_of(end, next, [](std::byte byte) { return byte == kGap; })) return false;
    }
  }
  return true;
}

}  // namespace quarry::testing
