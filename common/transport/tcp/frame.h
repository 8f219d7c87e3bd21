// The binary frames of a data stream.
//
//   offset  bytes  header, little-endian
//        0      1  type
//        1      3  0
//        4      4  item
//        8      8  request
//       16      8  offset of the payload in the item's range
//       24      4  payload_bytes, at most 1 MiB
//       28      4  meta_bytes
//
// kData  payload of an item. An item's frames follow each other in order on one stream;
//        the sender may stop between two of them. The first (offset 0) carries ItemMeta:
//        root, payload_bytes, range_offset, range_bytes, first and last edge sum, number of
//        chunk sums, 0 (8 bytes each), then the sums of all chunks of the whole payload, or
//        none, filled up with zeros to a multiple of 32 bytes.
// kPull  server to client: send this item, whole. No payload.
// kAbort client to server: a pulled item will not come, or not all of it. No payload.
//
// Headers and metadata are multiples of 32 bytes, so that payload which is aligned in memory
// stays so, relative to the kernel's buffers: copying is up to a quarter slower otherwise.
#ifndef QUARRY_COMMON_TRANSPORT_TCP_FRAME_H_
#define QUARRY_COMMON_TRANSPORT_TCP_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/checksum.h"
#include "common/transport/chunk_verifier.h"
#include "common/transport/transport.h"
#include "quarry/model_spec.h"

namespace quarry::transport::tcp {

inline constexpr size_t kHeaderBytes = 32;
// Long enough that a call moves what a socket holds, a tenth faster than with 256 KiB;
// short enough that what is taken back drains soon.
inline constexpr size_t kMaxFramePayload = 1 << 20;
inline constexpr size_t kFixedMetaBytes = 64;
inline constexpr size_t kMetaStep = 32;
// With so many chunk sums.
constexpr size_t MetaBytes(size_t sums) { return kFixedMetaBytes + (sums * 8 + kMetaStep - 1) / kMetaStep * kMetaStep; }
inline constexpr size_t kMaxMetaBytes = MetaBytes(ChunkCount(kMaxShardBytes));

enum class FrameType : uint8_t { kData = 1, kPull = 2, kAbort = 3 };

struct FrameHeader {
  FrameType type = FrameType::kData;
  ItemId id;
  uint64_t offset = 0;
  uint32_t payload_bytes = 0;
  uint32_t meta_bytes = 0;
};

void EncodeHeader(const FrameHeader& header, std::byte out[kHeaderBytes]);
// InvalidArgument names the field and the bound.
absl::Status DecodeHeader(const std::byte in[kHeaderBytes], FrameHeader* header);

struct ItemMeta {
  uint64_t root = 0;
  PayloadRange range;
  uint64_t edge_sums[2] = {0, 0};
  // Encoding: the chunk sums, or empty. Decoding: filled into the caller's storage.
  absl::Span<const uint64_t> sums;
};

// What travels with a write.
ItemMeta MetaOf(const Transfer& transfer);
// What travels with a put's item: its sums, in `sums`, where it is to have any.
ItemMeta SumSource(const ExposedRequest::Item& item, std::vector<uint64_t>* sums);
// Whether the sums that came for a get's item are those of the block that was asked for.
bool RootHolds(const ExposedRequest::Item& item, const ItemMeta& meta);

void EncodeMeta(const ItemMeta& meta, std::string* out);
// `sums` gets the chunk sums and must have room for ChunkCount(kMaxShardBytes); meta->sums
// then points there. InvalidArgument names the field and the bound.
absl::Status DecodeMeta(absl::Span<const std::byte> in, uint64_t* sums, ItemMeta* meta);

}  // namespace quarry::transport::tcp

#endif  // QUARRY_COMMON_TRANSPORT_TCP_FRAME_H_
