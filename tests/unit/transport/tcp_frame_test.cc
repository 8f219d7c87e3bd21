#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/transport/tcp/frame.h"

namespace quarry::transport::tcp {
namespace {

using ::testing::HasSubstr;

constexpr FrameHeader kFirst{FrameType::kData, {7, 3}, 0, 1000, MetaBytes(1)};
constexpr FrameHeader kLater{FrameType::kData, {7, 3}, 1000, 1000, 0};

absl::StatusOr<FrameHeader> RoundTrip(const FrameHeader& header) {
  std::byte bytes[kHeaderBytes];
  EncodeHeader(header, bytes);
  FrameHeader decoded;
  if (absl::Status status = DecodeHeader(bytes, &decoded); !status.ok()) return status;
  return decoded;
}

FrameHeader With(FrameHeader header, const std::function<void(FrameHeader&)>& change) {
  change(header);
  return header;
}

TEST(FrameHeaderTest, KeepsItsFields) {
  const FrameHeader headers[] = {
      kFirst,
      kLater,
      {FrameType::kData, {~0ull, ~0u}, kMaxShardBytes - 1, kMaxFramePayload, 0},
      {FrameType::kData, {0, 0}, 0, 1, kMaxMetaBytes},
      {FrameType::kPull, {1, 2}, 0, 0, 0},
      {FrameType::kAbort, {3, 4}, 0, 0, 0},
  };
  for (const FrameHeader& header : headers) {
    const auto decoded = RoundTrip(header);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->type, header.type);
    EXPECT_EQ(decoded->id, header.id);
    EXPECT_EQ(decoded->offset, header.offset);
    EXPECT_EQ(decoded->payload_bytes, header.payload_bytes);
    EXPECT_EQ(decoded->meta_bytes, header.meta_bytes);
  }
}

TEST(FrameHeaderTest, LiesOnTheWireAsDocumented) {
  std::byte bytes[kHeaderBytes];
  EncodeHeader({FrameType::kPull, {0x0102030405060708, 0x090A0B0C}, 0x11, 0x12, 0x13}, bytes);
  const uint8_t expected[kHeaderBytes] = {2,    0, 0, 0, 0x0C, 0x0B, 0x0A, 9, 8,    7, 6, 5, 4,    3, 2, 1,
                                          0x11, 0, 0, 0, 0,    0,    0,    0, 0x12, 0, 0, 0, 0x13, 0, 0, 0};
  EXPECT_EQ(std::memcmp(bytes, expected, kHeaderBytes), 0);
}

TEST(FrameHeaderTest, ErrorsNameTheFieldAndItsBound) {
  struct {
    FrameHeader header;
    const char* field;
    const char* bound;
  } const cases[] = {
      {With(kFirst, [](auto& h) { h.type = FrameType{0}; }), "type", "1 to 3"},
      {With(kFirst, [](auto& h) { h.type = FrameType{4}; }), "type", "1 to 3"},
      {With(kFirst, [](auto& h) { h.payload_bytes = 0; }), "payload_bytes", "1048576"},
      {With(kFirst, [](auto& h) { h.payload_bytes = kMaxFramePayload + 1; }), "payload_bytes", "1048576"},
      {With(kFirst, [](auto& h) { h.payload_bytes = ~0u; }), "payload_bytes", "1048576"},
      {With(kFirst, [](auto& h) { h.meta_bytes = 0; }), "meta_bytes", "64"},
      {With(kFirst, [](auto& h) { h.meta_bytes = kFixedMetaBytes - 8; }), "meta_bytes", "64"},
      {With(kFirst, [](auto& h) { h.meta_bytes = kFixedMetaBytes + 1; }), "meta_bytes", "steps of 32"},
      {With(kFirst, [](auto& h) { h.meta_bytes = kMaxMetaBytes + 8; }), "meta_bytes", "8256"},
      {With(kLater, [](auto& h) { h.meta_bytes = kFixedMetaBytes; }), "meta_bytes", "0 in others"},
      {With(kLater, [](auto& h) { h.offset = kMaxShardBytes; }), "offset", "67108864"},
      {With(kLater, [](auto& h) { h.offset = ~0ull; }), "offset", "67108864"},
      {{FrameType::kPull, {1, 1}, 1, 0, 0}, "offset", "must be 0"},
      {{FrameType::kPull, {1, 1}, 0, 1, 0}, "payload_bytes", "must be 0"},
      {{FrameType::kAbort, {1, 1}, 0, 0, 8}, "meta_bytes", "must be 0"},
  };
  for (const auto& c : cases) {
    const absl::Status status = RoundTrip(c.header).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.field << " " << c.bound;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.field));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.bound));
  }
}

TEST(FrameHeaderTest, ReservedBytesMustBeZero) {
  std::byte bytes[kHeaderBytes];
  EncodeHeader(kFirst, bytes);
  for (int at = 1; at < 4; ++at) {
    bytes[at] = std::byte{1};
    FrameHeader header;
    EXPECT_FALSE(DecodeHeader(bytes, &header).ok());
    bytes[at] = std::byte{0};
  }
}

absl::Status Decode(const std::string& encoded, std::vector<uint64_t>* sums, ItemMeta* meta) {
  return DecodeMeta({reinterpret_cast<const std::byte*>(encoded.data()), encoded.size()}, sums->data(), meta);
}

TEST(ItemMetaTest, KeepsItsFields) {
  const std::vector<uint64_t> sums = {1, ~0ull, 3};
  const ItemMeta meta{42, {65'537, 70'000, 150'000}, {5, 6}, sums};
  std::string encoded;
  EncodeMeta(meta, &encoded);
  EXPECT_EQ(encoded.size(), MetaBytes(3));
  std::vector<uint64_t> room(ChunkCount(kMaxShardBytes));
  ItemMeta decoded;
  ASSERT_TRUE(Decode(encoded, &room, &decoded).ok());
  EXPECT_EQ(decoded.root, 42u);
  EXPECT_EQ(decoded.range.offset, 65'537u);
  EXPECT_EQ(decoded.range.bytes, 70'000u);
  EXPECT_EQ(decoded.range.payload_bytes, 150'000u);
  EXPECT_EQ(decoded.edge_sums[0], 5u);
  EXPECT_EQ(decoded.edge_sums[1], 6u);
  EXPECT_EQ(std::vector<uint64_t>(decoded.sums.begin(), decoded.sums.end()), sums);
  EXPECT_EQ(decoded.sums.data(), room.data());
}

TEST(ItemMetaTest, TheLargestPayloadFits) {
  const std::vector<uint64_t> sums(ChunkCount(kMaxShardBytes), 9);
  std::string encoded;
  EncodeMeta({1, {0, kMaxShardBytes, kMaxShardBytes}, {0, 0}, sums}, &encoded);
  EXPECT_EQ(encoded.size(), kMaxMetaBytes);
  std::vector<uint64_t> room(sums.size());
  ItemMeta decoded;
  EXPECT_TRUE(Decode(encoded, &room, &decoded).ok());
}

TEST(ItemMetaTest, ErrorsNameTheFieldAndItsBound) {
  struct {
    PayloadRange range;  // offset, bytes, payload_bytes
    size_t sums;
    const char* field;
    const char* bound;
  } const cases[] = {
      {{0, 1, 0}, 0, "payload_bytes", "1 to 67108864"},
      {{0, 1, kMaxShardBytes + 1}, 0, "payload_bytes", "1 to 67108864"},
      {{0, 1, ~size_t{0}}, 0, "payload_bytes", "1 to 67108864"},
      {{0, 0, 100}, 0, "range_bytes", "payload_bytes 100"},
      {{0, 101, 100}, 0, "range_bytes", "payload_bytes 100"},
      {{100, 1, 100}, 0, "range_offset", "payload_bytes 100"},
      {{101, 1, 100}, 0, "range_offset", "payload_bytes 100"},
      {{~size_t{0}, 2, 100}, 0, "range_offset", "payload_bytes 100"},
      {{2, ~size_t{0}, 100}, 0, "range_bytes", "payload_bytes 100"},
      {{0, 100, 100}, 2, "chunk sums", "must be 1 or none"},
      {{0, 100, 65'537}, 1, "chunk sums", "must be 2 or none"},
      {{0, 100, 1}, ChunkCount(kMaxShardBytes), "range_bytes", "payload_bytes 1"},
  };
  std::vector<uint64_t> room(ChunkCount(kMaxShardBytes));
  for (const auto& c : cases) {
    const std::vector<uint64_t> sums(c.sums);
    std::string encoded;
    EncodeMeta({0, c.range, {0, 0}, sums}, &encoded);
    ItemMeta decoded;
    const absl::Status status = Decode(encoded, &room, &decoded);
    ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.field << " " << c.bound;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.field));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.bound));
  }
  for (size_t bytes : {size_t{0}, kFixedMetaBytes - 1, kFixedMetaBytes + 1, kMaxMetaBytes + 8}) {
    ItemMeta decoded;
    EXPECT_THAT(std::string(Decode(std::string(bytes, '\0'), &room, &decoded).message()), HasSubstr("meta_bytes"));
  }
}

TEST(ItemMetaTest, ReservedBytesAndFillingMustBeZero) {
  std::string encoded;
  EncodeMeta({1, {0, 100, 100}, {0, 0}, std::vector<uint64_t>{7}}, &encoded);
  std::vector<uint64_t> room(ChunkCount(kMaxShardBytes));
  ItemMeta decoded;
  ASSERT_TRUE(Decode(encoded, &room, &decoded).ok());
  for (size_t at = 0; at < encoded.size(); ++at) {
    const bool reserved = at >= kFixedMetaBytes - 8 && at < kFixedMetaBytes;
    const bool filling = at >= kFixedMetaBytes + 8;
    if (!reserved && !filling) continue;
    std::string wrong = encoded;
    wrong[at] = 1;
    EXPECT_THAT(std::string(Decode(wrong, &room, &decoded).message()), HasSubstr("must be 0")) << "byte " << at;
  }
}

TEST(ItemMetaTest, HoldsAsManySumsAsItSays) {
  std::string encoded;
  EncodeMeta({1, {0, 100, 100}, {0, 0}, std::vector<uint64_t>{7}}, &encoded);
  std::vector<uint64_t> room(ChunkCount(kMaxShardBytes));
  ItemMeta decoded;
  ASSERT_TRUE(Decode(encoded, &room, &decoded).ok());
  for (const std::string& wrong : {encoded.substr(0, kFixedMetaBytes), encoded + std::string(kMetaStep, '\0')}) {
    EXPECT_THAT(std::string(Decode(wrong, &room, &decoded).message()), HasSubstr("1 chunk sums"));
  }
}

}  // namespace
}  // namespace quarry::transport::tcp
