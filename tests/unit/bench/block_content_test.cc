#include "tools/bench/block_content.h"

#include <gtest/gtest.h>

#include <set>

namespace quarry::bench {
namespace {

constexpr size_t kPiece = 1024;
constexpr size_t kPieces = 8;

// One block in pieces that lie apart, in an order of their own.
class BlockContent : public testing::Test {
 protected:
  BlockContent() : memory_(kPiece * kPieces * 2) {
    for (size_t i = 0; i < kPieces; ++i) {
      segments_.push_back({.base = memory_.data() + ((i * 5) % kPieces) * 2 * kPiece, .length = kPiece});
    }
  }

  std::vector<std::byte> memory_;
  SegmentList segments_;
};

TEST_F(BlockContent, WhatWasFilledIsRight) {
  FillBlock(7, segments_);
  EXPECT_EQ(WrongBytes(7, segments_), 0);
  EXPECT_EQ(WrongBytesSampled(7, segments_, 1, 500), 0);
}

TEST_F(BlockContent, EveryFlippedByteIsCounted) {
  FillBlock(7, segments_);
  segments_[0].base[0] ^= std::byte{1};
  segments_[3].base[517] ^= std::byte{0x80};
  segments_[7].base[kPiece - 1] ^= std::byte{0xff};
  EXPECT_EQ(WrongBytes(7, segments_), 3);
}

TEST_F(BlockContent, AnotherBlockIsWrong) {
  FillBlock(7, segments_);
  EXPECT_GT(WrongBytes(8, segments_), kPiece * kPieces / 2);
  EXPECT_GT(WrongBytesSampled(8, segments_, 1, 4), 0);
}

TEST_F(BlockContent, PiecesInEachOthersPlaceAreWrong) {
  FillBlock(7, segments_);
  std::swap(segments_[1], segments_[2]);
  EXPECT_GT(WrongBytes(7, segments_), 0);
}

TEST_F(BlockContent, StridedPiecesReadAsOneAfterTheOther) {
  FillBlock(7, segments_);
  const SegmentList strided = {{.base = memory_.data(), .length = kPiece, .stride = 2 * kPiece, .count = kPieces}};
  FillBlock(9, strided);
  SegmentList single;
  for (size_t i = 0; i < kPieces; ++i) single.push_back({.base = memory_.data() + i * 2 * kPiece, .length = kPiece});
  EXPECT_EQ(WrongBytes(9, single), 0);
}

TEST_F(BlockContent, NothingOutsideThePiecesIsTouched) {
  std::fill(memory_.begin(), memory_.end(), std::byte{0x33});
  FillBlock(7, segments_);
  PoisonBlock(segments_);
  for (size_t i = 0; i < kPieces; ++i) {
    for (size_t k = 0; k < kPiece; ++k) ASSERT_EQ(memory_[(i * 2 + 1) * kPiece + k], std::byte{0x33});
  }
}

TEST_F(BlockContent, PoisonIsWrongInEveryStretch) {
  FillBlock(7, segments_);
  PoisonBlock(segments_);
  for (const Segment& piece : segments_) {
    for (size_t at = 0; at < kPiece; at += kPoisonStride) EXPECT_EQ(piece.base[at], std::byte{0xEE});
  }
  EXPECT_GE(WrongBytes(7, segments_), kPieces * kPiece / kPoisonStride);
}

TEST(HashOf, DiffersByIdAndSalt) {
  std::set<std::string> hashes;
  for (uint64_t id = 0; id < 1000; ++id) {
    for (uint64_t salt = 0; salt < 3; ++salt) hashes.insert(HashOf(id, salt));
  }
  EXPECT_EQ(hashes.size(), 3000);
  EXPECT_EQ(hashes.begin()->size(), kHashBytes);
  EXPECT_EQ(HashOf(5, 1), HashOf(5, 1));
}

}  // namespace
}  // namespace quarry::bench
