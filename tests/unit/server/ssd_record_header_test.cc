// What lies in front of a payload on an SSD: its bytes, and that it is believed as it was
// written or not at all.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "common/checksum.h"
#include "quarry/model_spec.h"
#include "server/ssd/record_header.h"

namespace quarry::server {
namespace {

class RecordHeaderTest : public ::testing::Test {
 protected:
  void Make(uint32_t payload_bytes) {
    payload_.resize(payload_bytes);
    for (size_t i = 0; i < payload_.size(); ++i) payload_[i] = static_cast<std::byte>(i * 31 + i / 251);
    sums_.clear();
    for (size_t at = 0; at < payload_.size(); at += kChunkBytes) {
      sums_.push_back(ChunkSum(&payload_[at], std::min(kChunkBytes, payload_.size() - at)));
    }
    expected_.identity = {id_, 3, 0x1234, hash_};
    expected_.generation = 0x1122334455667788;
    expected_.payload_bytes = payload_bytes;
    expected_.root = RootSum(IdentitySeed(id_, 3, 0x1234, hash_), payload_bytes, sums_);
    expected_.sums = sums_;
    header_.resize(RecordHeaderBytes(payload_bytes));
    EncodeRecordHeader(expected_, header_.data());
  }
  RecordCheck Check(const RecordHeader& expected) const {
    uint64_t root;
    absl::Span<const uint64_t> sums;
    return DecodeRecordHeader(header_, expected, &root, &sums);
  }
  bool Holds() const {
    uint64_t root;
    absl::Span<const uint64_t> sums;
    return RecordHolds(header_, payload_.data(), expected_, &root, &sums);
  }

  const std::string id_ = std::string("0123456789abcdefghijklmnopqrstuv");
  const std::string hash_ = std::string("the hash of 23 bytes...");
  std::vector<std::byte> payload_;
  std::vector<uint64_t> sums_;
  std::vector<std::byte> header_;
  RecordHeader expected_;
};

TEST_F(RecordHeaderTest, TakesWholePages) {
  EXPECT_EQ(RecordHeaderBytes(1), kPageBytes);
  EXPECT_EQ(RecordBytes(1), 2 * kPageBytes);
  EXPECT_EQ(RecordBytes(kPageBytes), 2 * kPageBytes);
  EXPECT_EQ(RecordBytes(kPageBytes + 1), 3 * kPageBytes);
  // 486 sums fit into the first page behind 208 bytes.
  EXPECT_EQ(RecordHeaderBytes(486 * kChunkBytes), kPageBytes);
  EXPECT_EQ(RecordHeaderBytes(486 * kChunkBytes + 1), 2 * kPageBytes);
}

// A disk that was written by one version is read by the next. The sums are from Python's xxhash.
TEST_F(RecordHeaderTest, LiesOnTheDiskAsItsTableSays) {
  Make(kChunkBytes + 5);
  std::string wanted(kPageBytes, '\0');
  const auto put = [&](size_t at, const void* bytes, size_t count) { std::memcpy(&wanted[at], bytes, count); };
  put(0, "QRYBLOCK", 8);
  put(8, "\x01\x00\x00\x00", 4);
  put(12, "\x00\x10\x00\x00", 4);
  put(16, "\x2c\xb1\x6f\xab\xa7\x65\x87\x6e", 8);  // the sum
  put(24, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
  put(32, "\xa0\xdd\x71\xd7\x7f\xba\x5e\xc6", 8);  // the root
  put(40, "\x05\x00\x01\x00", 4);
  put(44, "\x34\x12\x03\x17", 4);
  put(48, id_.data(), 32);
  put(80, hash_.data(), hash_.size());
  put(208, "\xea\x5c\x85\xa6\xb0\xa4\xa0\xac", 8);  // of the chunks
  put(216, "\xac\x77\x30\xa1\xb6\x18\x8e\x98", 8);
  const std::string found(reinterpret_cast<const char*>(header_.data()), header_.size());
  for (size_t at = 0; at < found.size(); at += 8) EXPECT_EQ(found.substr(at, 8), wanted.substr(at, 8)) << at;
}

TEST_F(RecordHeaderTest, GivesBackWhatWasWritten) {
  for (const uint32_t bytes : {1u, 4096u, 65'536u, 65'537u, 1u << 20, 40u << 20}) {
    Make(bytes);
    uint64_t root = 0;
    absl::Span<const uint64_t> sums;
    ASSERT_TRUE(RecordHolds(header_, payload_.data(), expected_, &root, &sums)) << bytes;
    EXPECT_EQ(root, expected_.root);
    EXPECT_EQ(std::vector<uint64_t>(sums.begin(), sums.end()), sums_);
  }
}

TEST_F(RecordHeaderTest, AnyBitThatFlipsIsNoticed) {
  Make(3 * kChunkBytes);
  for (size_t bit = 0; bit < header_.size() * 8; ++bit) {
    header_[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ASSERT_EQ(Check(expected_), RecordCheck::kTorn) << "bit " << bit;
    header_[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  for (size_t at = 0; at < payload_.size(); at += 997) {
    payload_[at] ^= static_cast<std::byte>(1 << at % 8);
    ASSERT_FALSE(Holds()) << "payload byte " << at;
    payload_[at] ^= static_cast<std::byte>(1 << at % 8);
  }
  for (const size_t at : {size_t{0}, kChunkBytes - 1, kChunkBytes, payload_.size() - 1}) {
    payload_[at] ^= std::byte{1};
    EXPECT_FALSE(Holds()) << "payload byte " << at;
    payload_[at] ^= std::byte{1};
  }
  EXPECT_TRUE(Holds());
}

TEST_F(RecordHeaderTest, AnyPartThatIsMissingIsNoticed) {
  Make(40 << 20);
  ASSERT_EQ(header_.size(), 2 * kPageBytes);
  const std::vector<std::byte> whole = header_;
  for (const size_t page : {size_t{0}, size_t{1}}) {
    std::memset(&header_[page * kPageBytes], 0, kPageBytes);
    EXPECT_EQ(Check(expected_), RecordCheck::kTorn) << page;
    header_ = whole;
  }
  header_.resize(kPageBytes);
  EXPECT_EQ(Check(expected_), RecordCheck::kTorn);
  header_.clear();
  EXPECT_EQ(Check(expected_), RecordCheck::kTorn);
}

TEST_F(RecordHeaderTest, AnotherRecordsHeaderIsForeign) {
  Make(100);
  const std::string other_id(32, 'x');
  const std::string longer = hash_ + '\0';
  const std::vector<std::function<void(RecordHeader*)>> differences = {
      [&](RecordHeader* h) { h->identity.namespace_id = other_id; },
      [](RecordHeader* h) { h->identity.group = 4; },
      [](RecordHeader* h) { h->identity.shard = 0x1235; },
      [](RecordHeader* h) { h->identity.hash = "the hash of 23 bytes,,,"; },
      [&](RecordHeader* h) { h->identity.hash.remove_suffix(1); },
      [&](RecordHeader* h) { h->identity.hash = longer; },
      [](RecordHeader* h) { h->generation += 1; },
      [](RecordHeader* h) { h->payload_bytes += 1; },
  };
  for (size_t i = 0; i < differences.size(); ++i) {
    RecordHeader other = expected_;
    differences[i](&other);
    EXPECT_EQ(Check(other), RecordCheck::kForeign) << i;
  }
  EXPECT_EQ(Check(expected_), RecordCheck::kGood);
}

// The right header in front of another block's payload, which is as long.
TEST_F(RecordHeaderTest, AnotherRootIsNotBelieved) {
  Make(100);
  RecordHeader forged = expected_;
  forged.root = RootSum(IdentitySeed(id_, 3, 0x1234, "another"), 100, sums_);
  EncodeRecordHeader(forged, header_.data());
  EXPECT_EQ(Check(expected_), RecordCheck::kGood);
  EXPECT_FALSE(Holds());
}

TEST_F(RecordHeaderTest, AHeaderForAnotherExtentIsAsIfItHadBeenWrittenThere) {
  Make(5000);
  const std::vector<std::byte> before = header_;
  SetGeneration(77, header_.data());
  EXPECT_EQ(Check(expected_), RecordCheck::kForeign);
  expected_.generation = 77;
  EXPECT_TRUE(Holds());
  std::vector<std::byte> anew(header_.size());
  EncodeRecordHeader(expected_, anew.data());
  EXPECT_EQ(header_, anew);
  EXPECT_NE(header_, before);
}

TEST_F(RecordHeaderTest, HashesOfEveryLength) {
  const std::string longest(kMaxHashBytes, 'h');
  for (size_t bytes = 1; bytes <= kMaxHashBytes; ++bytes) {
    Make(8);
    expected_.identity.hash = absl::string_view(longest).substr(0, bytes);
    EncodeRecordHeader(expected_, header_.data());
    EXPECT_EQ(Check(expected_), RecordCheck::kGood) << bytes;
  }
}

}  // namespace
}  // namespace quarry::server
